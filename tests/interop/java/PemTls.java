import io.netty.buffer.ByteBufAllocator;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslHandler;
import io.netty.handler.ssl.SslProvider;
import java.io.File;
import org.apache.bookkeeper.conf.AbstractConfiguration;
import org.apache.bookkeeper.tls.SecurityException;
import org.apache.bookkeeper.tls.SecurityHandlerFactory;

/** TLS of the JDK with PEM files, which needs no further security provider on the class path. */
public class PemTls implements SecurityHandlerFactory {
    private SslContext context;
    private ByteBufAllocator allocator;

    @Override
    public String getHandlerName() {
        return "pem";
    }

    @Override
    public void init(NodeType type, AbstractConfiguration conf, ByteBufAllocator buffers)
        throws SecurityException {
        File certificate = new File(conf.getString("pemCertificate"));
        allocator = buffers;
        try {
            context = type == NodeType.Client
                ? SslContextBuilder.forClient().trustManager(certificate)
                    .endpointIdentificationAlgorithm(null).sslProvider(SslProvider.JDK).build()
                : SslContextBuilder.forServer(certificate, new File(conf.getString("pemKey")))
                    .sslProvider(SslProvider.JDK).startTls(true).build();
        } catch (Exception error) {
            throw new SecurityException(error);
        }
    }

    @Override
    public SslHandler newTLSHandler() {
        return context.newHandler(allocator);
    }

    @Override
    public SslHandler newTLSHandler(String host, int port) {
        return context.newHandler(allocator, host, port);
    }
}
