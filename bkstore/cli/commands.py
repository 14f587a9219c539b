"""The commands of `bkstore`, in the groups and the order of `bkstore --help`."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """A command's module, relative to `bkstore.cli`; its summary, the first line of the module's
    docstring, which `bkstore --help` prints without importing it; and examples, one a line, which
    end the command's help. A command with subcommands has an example of each."""

    module: str
    summary: str
    examples: str


COMMAND_GROUPS = {
    "to begin with": {
        "demo": Command(
            "trials.demo",
            "a tour with generated data: cluster, faults, audit, dump, analyses, report",
            "bkstore demo\nbkstore demo --bookie bookie-1 --report bookie-1.html",
        ),
        "completion": Command(
            "completion",
            "a script that lets a shell complete commands, options and files",
            "bkstore completion bash > ~/.local/share/bash-completion/completions/bkstore",
        ),
    },
    "read one bookie": {
        "inspect": Command(
            "bookie.inspect",
            "layout, directories, counts, bytes and oddities of a bookie directory",
            "bkstore inspect bookie-1",
        ),
        "ledgers": Command(
            "bookie.ledgers",
            "the ledgers of bookie directories, one row each",
            "bkstore ledgers bookie-1 --all-scopes -o ledgers.csv\n"
            "bkstore ledgers copies/* --jobs 4",
        ),
        "ledger": Command(
            "bookie.ledger",
            "the entries of one ledger and their locations",
            "bkstore ledger bookie-1 7 --format jsonl",
        ),
        "availability": Command(
            "bookie.availability",
            "which entries of a ledger are here, condensed as in BP-34",
            "bkstore availability bookie-1 7 --missing-from 0:29 --stripe 3:2:1",
        ),
        "readledger": Command(
            "bookie.readledger",
            "the entries of one ledger, or the headers of Pulsar's messages in them",
            "bkstore readledger bookie-1 7 --first 10 --last 19 --digest-type CRC32C",
        ),
        "where": Command(
            "bookie.where",
            "the entry logs that hold a ledger's entries, found without the index",
            "bkstore where bookie-1 7 0:29 --ranges",
        ),
        "readlog": Command(
            "bookie.readlog",
            "the records of entry logs",
            "bkstore readlog bookie-1 0x1f --ledger-id 7\nbkstore readlog 1f.log --msg",
        ),
        "readlogmetadata": Command(
            "bookie.readlogmetadata",
            "the ledgers of entry logs, and their bytes",
            "bkstore readlogmetadata bookie-1 0x1f",
        ),
        "readjournal": Command(
            "bookie.readjournal",
            "the records of journal files",
            "bkstore readjournal bookie-1 --msg --format jsonl",
        ),
        "lastmark": Command(
            "bookie.lastmark",
            "for each journal, the position at which a replay would begin",
            "bkstore lastmark bookie-1",
        ),
        "listfiles": Command(
            "bookie.listfiles",
            "the files of a bookie, by what they are",
            "bkstore listfiles bookie-1 --entrylog --other",
        ),
        "rocks": Command(
            "rocksdb.rocks",
            "the files, rows and logs of RocksDB databases, read without RocksDB",
            "bkstore rocks bookie-1 --database locations\nbkstore rocks bookie-1 --log",
        ),
    },
    "check, compare and rewrite": {
        "check": Command(
            "maintenance.check",
            "consistency of index, entry logs, journals and states",
            "bkstore check bookie-1 --digest-type CRC32C --metadata metadata.json\n"
            "bkstore check bookie-1 bookie-2 -o findings.csv",
        ),
        "usage": Command(
            "maintenance.usage",
            "what fills the disk: live bytes, garbage, pinned logs, the index, caches",
            "bkstore usage copies/*\nbkstore usage bookie-1 --detail\n"
            "bkstore usage bookie-1 --by ledger -o usage.csv",
        ),
        "diff": Command(
            "maintenance.diff",
            "differences between two bookies: ledgers, entries as ranges, states",
            "bkstore diff bookie-1 bookie-2 --ledger-id 7",
        ),
        "convert": Command(
            "maintenance.convert",
            "a bookie's directory with its index as RocksDB, or as index files",
            "bkstore convert bookie-1 converted --to rocksdb --link",
        ),
        "rebuild-index": Command(
            "maintenance.rebuild_index",
            "a bookie's directory with an index rebuilt from its entry logs",
            "bkstore rebuild-index bookie-1 rebuilt --to idx",
        ),
        "salvage": Command(
            "maintenance.salvage",
            "all readable records of damaged entry logs, as a new bookie's directory",
            "bkstore salvage bookie-1 salvaged --digest-type CRC32C",
        ),
    },
    "after a disaster": {
        "rescue": Command(
            "rescue.rescue",
            "ledgers from the disks of a cluster that no longer runs, from any sound copy",
            "bkstore rescue metadata.json copies/* rescued --as parquet\n"
            "bkstore rescue metadata.json copies/* --dry-run --topic 'shop/orders/*'",
        ),
    },
    "dumps and analyses": {
        "dump": Command(
            "datasets.dump",
            "the tables of bookie directories as Parquet, many bookies in one dataset",
            "bkstore dump bookie-1 bookie-2 bookie-3 dumped\n"
            "bkstore dump copies/* tuesday --since monday",
        ),
        "analyze": Command(
            "datasets.analyze",
            "analyses of a dump: losses, garbage, growth, as tables and a report",
            "bkstore analyze dumped --metadata metadata.json --report report.html",
        ),
        "report": Command(
            "datasets.report",
            "the report page on bookies or on a dump, in one step",
            "bkstore report copies/* --metadata metadata.json -o report.html",
        ),
        "sql": Command(
            "datasets.sql",
            "SQL over a dump: its tables, and its analyses as tables",
            'bkstore sql dumped "select bookie, count(*) from entries group by bookie"',
        ),
        "load": Command(
            "datasets.load",
            "a new index, RocksDB or index files, from a bookie's part of a dump",
            "bkstore load dumped loaded --to rocksdb --bookie bookie-1",
        ),
    },
    "clusters": {
        "audit": Command(
            "audit",
            "bookies' entries compared with ledger metadata, by the rules of BP-34",
            "bkstore audit metadata.json bookie-1=copies/1 bookie-2=copies/2\n"
            "bkstore audit zk+hierarchical://localhost:2181/ledgers --retries 3",
        ),
        "repair": Command(
            "repair.repair",
            "missing replicas of a running cluster: a plan, and with --apply their repair",
            "bkstore repair zk+hierarchical://localhost:2181/ledgers\n"
            "bkstore repair zk://localhost:2181/ledgers --from audit.json -o plan.json\n"
            "bkstore repair zk://localhost:2181/ledgers --apply --bytes-per-second 20e6",
        ),
        "metadata": Command(
            "metadata",
            "the ledger metadata of a cluster: listed, one ledger's, or as a file",
            "bkstore metadata list zk+hierarchical://localhost:2181/ledgers\n"
            "bkstore metadata show metadata.json 7\n"
            "bkstore metadata export zk://localhost:2181/ledgers -o metadata.json\n"
            "bkstore metadata delete zk://localhost:2181/ledgers --from leaks.csv --apply",
        ),
        "leaks": Command(
            "pulsar.leaks",
            "the ledgers of Pulsar that nothing refers to, and those that are missing",
            "bkstore leaks zk://localhost:2181/ledgers --grace 2d -o leaks.csv\n"
            "bkstore leaks metadata.json --topic 'shop/*'",
        ),
        "serve": Command(
            "serve",
            "serve a bookie's directory on a port, for clients of BookKeeper",
            "bkstore serve bookie-1 --create --storage db --port 3181",
        ),
        "ensemble": Command(
            "ensemble",
            "a ZooKeeper and bookies on loopback, for trials and tests, with faults",
            "bkstore ensemble up 3 --storage sorted,db --dir cluster --detach\n"
            "bkstore ensemble status --dir cluster\n"
            "bkstore ensemble fault bookie-1 slow-disk --seconds 0.5 --dir cluster\n"
            "bkstore ensemble heal bookie-1 --dir cluster\n"
            "bkstore ensemble down --dir cluster",
        ),
    },
    "experiments": {
        "lab": Command(
            "trials.lab",
            "experiments with storage layouts: tables, pictures, findings",
            "bkstore lab layouts --picture layouts.svg",
        ),
        "streams": Command(
            "streams",
            "the objects that hold a stream's offsets, and the cost of finding them",
            "bkstore streams lookup image.json --stream 3 --start 1000 --end 2000\n"
            "bkstore streams compare image.json --queries 500 --totals",
        ),
    },
}
"""Title -> name -> command. Titles are as short as a heading of the help can be."""

COMMANDS = {name: command for group in COMMAND_GROUPS.values() for name, command in group.items()}
"""Name -> command."""
