/* Loaded before libc (LD_PRELOAD): lets one call on chosen files fail, as the system would.
 *
 * Files belong to a group by the prefix of their path. `failing_calls_arm` chooses a group, the
 * number of the call that fails, the errno, and whether all later calls fail too. Only calls that
 * can fail with that errno are counted, by the table of `concerned`. Calls are counted for each
 * group, so a run that fails nothing says how many cases there are.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define GROUPS 3
#define DESCRIPTORS 65536
#define PREFIXES 8

enum kind { OPEN, CREATE, READ, WRITE, SYNC, NAME, LOOK, LIST, MAP, GROW };

static char prefixes[GROUPS][PREFIXES][PATH_MAX];
static int prefix_counts[GROUPS];
static signed char group_of_fd[DESCRIPTORS]; /* group + 1, 0 for none */
static char *path_of_fd[DESCRIPTORS];
static int record_to = -1;
static int armed = 0, armed_group, armed_errno, armed_sticky;
static long armed_number, counted[GROUPS];
static char failed_call[PATH_MAX + 64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) static __typeof__(&name) real; if (!real) real = dlsym(RTLD_NEXT, #name)

void failing_calls_prefix(int group, const char *prefix) {
    strncpy(prefixes[group][prefix_counts[group]++], prefix, PATH_MAX - 1);
}

/* Write a line for each call that could have failed to the descriptor `fd`; -1 ends it. */
void failing_calls_record(int fd) { record_to = fd; }

void failing_calls_arm(int group, long number, int error, int sticky) {
    armed_group = group; armed_number = number; armed_errno = error; armed_sticky = sticky;
    memset(counted, 0, sizeof counted);
    failed_call[0] = 0;
    armed = 1;
}

void failing_calls_disarm(void) { armed = 0; }
long failing_calls_counted(int group) { return counted[group]; }
const char *failing_calls_failed(void) { return failed_call; }

static int concerned(enum kind kind, int error) {
    switch (error) {
    case ENOSPC: case EDQUOT:
        return kind == CREATE || kind == WRITE || kind == SYNC || kind == NAME || kind == GROW;
    case EACCES: return kind == OPEN || kind == CREATE || kind == NAME || kind == LOOK || kind == LIST;
    case EMFILE: return kind == OPEN || kind == CREATE || kind == LIST;
    case ENOMEM: return kind != SYNC;
    default: return 1;
    }
}

static int group_of_path(const char *path) {
    char whole[PATH_MAX];
    if (!path) return -1;
    if (path[0] != '/') {
        if (!getcwd(whole, sizeof whole)) return -1;
        size_t length = strlen(whole);
        snprintf(whole + length, sizeof whole - length, "/%s", path);
        path = whole;
    }
    for (int group = 0; group < GROUPS; group++)
        for (int i = 0; i < prefix_counts[group]; i++) {
            size_t length = strlen(prefixes[group][i]);
            if (!strncmp(path, prefixes[group][i], length) && (path[length] == '/' || !path[length]))
                return group;
        }
    return -1;
}

/* A link in one group that leads into another stands for a file there, when it is opened. */
static int group_of_target(const char *path) {
    char target[PATH_MAX];
    int group = group_of_path(path);
    if (group < 0) return group;
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length <= 0) return group;
    target[length] = 0;
    return target[0] == '/' ? group_of_path(target) : group;
}

static int group_at(int dirfd, const char *path) {
    if (path && path[0] != '/' && dirfd != AT_FDCWD)
        return dirfd >= 0 && dirfd < DESCRIPTORS ? group_of_fd[dirfd] - 1 : -1;
    return group_of_path(path);
}

static int group_of(int fd) { return fd >= 0 && fd < DESCRIPTORS ? group_of_fd[fd] - 1 : -1; }

/* Return whether this call is to fail; errno is set then. */
static int fails(enum kind kind, int group, const char *call, const char *path, int fd) {
    int failing = 0;
    char line[PATH_MAX + 128];
    if (!armed || group < 0) return 0;
    if (!path && fd >= 0 && fd < DESCRIPTORS) path = path_of_fd[fd];
    pthread_mutex_lock(&lock);
    if (concerned(kind, armed_errno)) {
        long number = ++counted[group];
        if (record_to >= 0)
            syscall(SYS_write, record_to, line, snprintf(line, sizeof line, "%d %s %s\n", group, call, path ? path : "?"));
        if (group == armed_group && (number == armed_number || (armed_sticky && number > armed_number && armed_number > 0))) {
            failing = 1;
            if (!failed_call[0])
                snprintf(failed_call, sizeof failed_call, "%s %s", call, path ? path : "?");
        }
    }
    pthread_mutex_unlock(&lock);
    if (failing) errno = armed_errno;
    return failing;
}

static int opened(int fd, int group, const char *path) {
    if (fd < 0 || fd >= DESCRIPTORS) return fd;
    group_of_fd[fd] = group + 1;
    free(path_of_fd[fd]);
    path_of_fd[fd] = group >= 0 && path ? strdup(path) : NULL;
    return fd;
}

static enum kind kind_of_open(int flags) { return flags & O_CREAT ? CREATE : OPEN; }

#define OPENING(name, group_expression, path, flags, call_real, ...) \
    mode_t mode = 0; int group; REAL(name); \
    if (flags & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); } \
    group = group_expression; \
    if (fails(kind_of_open(flags), group, #name, path, 0)) return -1; \
    return opened(call_real, group, path)

int open(const char *path, int flags, ...) { OPENING(open, group_of_target(path), path, flags, real(path, flags, mode)); }
int open64(const char *path, int flags, ...) { OPENING(open64, group_of_target(path), path, flags, real(path, flags, mode)); }
int openat(int at, const char *path, int flags, ...) { OPENING(openat, group_at(at, path), path, flags, real(at, path, flags, mode)); }
int openat64(int at, const char *path, int flags, ...) { OPENING(openat64, group_at(at, path), path, flags, real(at, path, flags, mode)); }

static FILE *stream_of(FILE *file, int group, const char *path) { if (file) opened(fileno(file), group, path); return file; }
FILE *fopen(const char *path, const char *mode) {
    REAL(fopen); int group = group_of_path(path);
    if (fails(mode[0] == 'r' ? OPEN : CREATE, group, "fopen", path, 0)) return NULL;
    return stream_of(real(path, mode), group, path);
}
FILE *fopen64(const char *path, const char *mode) {
    REAL(fopen64); int group = group_of_path(path);
    if (fails(mode[0] == 'r' ? OPEN : CREATE, group, "fopen64", path, 0)) return NULL;
    return stream_of(real(path, mode), group, path);
}
int close(int fd) { REAL(close); opened(fd, -1, NULL); return real(fd); }
int dup(int fd) { REAL(dup); int group = group_of(fd); if (fails(OPEN, group, "dup", NULL, fd)) return -1; return opened(real(fd), group, group_of(fd) >= 0 ? path_of_fd[fd] : NULL); }

DIR *opendir(const char *path) {
    REAL(opendir); int group = group_of_path(path); DIR *dir;
    if (fails(LIST, group, "opendir", path, 0)) return NULL;
    dir = real(path);
    if (dir) opened(dirfd(dir), group, path);
    return dir;
}
int closedir(DIR *dir) { REAL(closedir); opened(dirfd(dir), -1, NULL); return real(dir); }

#define ON_FD(type, name, kind, parameters, arguments, fd) \
    type name parameters { REAL(name); if (fails(kind, group_of(fd), #name, NULL, fd)) return -1; return real arguments; }

ON_FD(ssize_t, read, READ, (int fd, void *to, size_t size), (fd, to, size), fd)
ON_FD(ssize_t, pread, READ, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), fd)
ON_FD(ssize_t, pread64, READ, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at), fd)
ON_FD(ssize_t, write, WRITE, (int fd, const void *from, size_t size), (fd, from, size), fd)
ON_FD(ssize_t, pwrite, WRITE, (int fd, const void *from, size_t size, off_t at), (fd, from, size, at), fd)
ON_FD(ssize_t, pwrite64, WRITE, (int fd, const void *from, size_t size, off64_t at), (fd, from, size, at), fd)
ON_FD(ssize_t, writev, WRITE, (int fd, const struct iovec *from, int count), (fd, from, count), fd)
ON_FD(int, fsync, SYNC, (int fd), (fd), fd)
ON_FD(int, fdatasync, SYNC, (int fd), (fd), fd)
ON_FD(int, ftruncate, GROW, (int fd, off_t size), (fd, size), fd)
ON_FD(int, ftruncate64, GROW, (int fd, off64_t size), (fd, size), fd)
ON_FD(int, fallocate, GROW, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), fd)
ON_FD(int, fallocate64, GROW, (int fd, int mode, off64_t at, off64_t size), (fd, mode, at, size), fd)

#define ON_PATH(name, kind, parameters, arguments, path) \
    int name parameters { REAL(name); if (fails(kind, group_of_path(path), #name, path, 0)) return -1; return real arguments; }

ON_PATH(mkdir, NAME, (const char *path, mode_t mode), (path, mode), path)
ON_PATH(symlink, NAME, (const char *to, const char *path), (to, path), path)
ON_PATH(rename, NAME, (const char *from, const char *to), (from, to), to)
ON_PATH(link, NAME, (const char *from, const char *to), (from, to), to)
ON_PATH(stat, LOOK, (const char *path, struct stat *to), (path, to), path)
ON_PATH(stat64, LOOK, (const char *path, struct stat64 *to), (path, to), path)
ON_PATH(lstat, LOOK, (const char *path, struct stat *to), (path, to), path)
ON_PATH(lstat64, LOOK, (const char *path, struct stat64 *to), (path, to), path)

#define ON_AT(name, kind, parameters, arguments, at, path) \
    int name parameters { REAL(name); if (fails(kind, group_at(at, path), #name, path, 0)) return -1; return real arguments; }

ON_AT(fstatat, LOOK, (int at, const char *path, struct stat *to, int flags), (at, path, to, flags), at, path)
ON_AT(fstatat64, LOOK, (int at, const char *path, struct stat64 *to, int flags), (at, path, to, flags), at, path)

/* Removing takes no room and no descriptor: it fails for lack of permission, or of the medium. */
#define REMOVING(name, parameters, arguments, group_expression, path) \
    int name parameters { REAL(name); int group = group_expression; \
        if (armed_errno != ENOSPC && armed_errno != EDQUOT && fails(NAME, group, #name, path, 0)) return -1; \
        return real arguments; }
REMOVING(unlink, (const char *path), (path), group_of_path(path), path)
REMOVING(unlinkat, (int at, const char *path, int flags), (at, path, flags), group_at(at, path), path)
REMOVING(rmdir, (const char *path), (path), group_of_path(path), path)

void *mmap(void *where, size_t size, int protection, int flags, int fd, off_t at) {
    REAL(mmap);
    if (armed && fd >= 0 && (armed_errno == ENOMEM || armed_errno == EMFILE) && fails(MAP, group_of(fd), "mmap", NULL, fd)) return MAP_FAILED;
    return real(where, size, protection, flags, fd, at);
}
