import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;

/** Bytes as hex text, the way they travel between the tests and the driver. */
class Hex {
    private Hex() {
    }

    static byte[] bytes(String text) {
        return ByteBufUtil.decodeHexDump(text);
    }

    static ByteBuf buffer(String text) {
        return Unpooled.wrappedBuffer(bytes(text));
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : ByteBufUtil.hexDump(bytes);
    }

    /** The readable bytes; the buffer is released. */
    static String text(ByteBuf buffer) {
        if (buffer == null) {
            return null;
        }
        String text = ByteBufUtil.hexDump(buffer);
        buffer.release();
        return text;
    }
}
