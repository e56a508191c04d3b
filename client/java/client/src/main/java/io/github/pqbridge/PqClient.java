package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.Nats;
import io.nats.client.Options;
import java.io.IOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * The queues behind a NATS connection. It is safe for use by many threads, and a connection may have
 * any number of clients.
 *
 * <pre>{@code
 * try (PqClient client = PqClient.connect()) {
 *     Queue jobs = client.priorityQueue("jobs"); // no need to create it
 *     jobs.push(Push.of("hello").priority(5));
 * }
 * }</pre>
 *
 * <p>A call that waits ends with {@link CallInterruptedException} when its thread is interrupted. All
 * exceptions are {@link PqException}s, and their text says what would be right.
 */
public final class PqClient implements AutoCloseable {
    private static final Pattern PREFIX = Pattern.compile("[^\\s.*>]+(\\.[^\\s.*>]+)*");

    private static final String HOST = host();

    final Link link;
    final Duration timeout;
    final String holder;
    private final String prefix;
    private final String fifoPrefix;
    private final boolean owns;

    private PqClient(Builder b) {
        link = Link.of(b.connection);
        timeout = b.timeout;
        holder = b.name == null ? defaultHolder(b.connection) : b.name;
        prefix = b.prefix;
        fifoPrefix = b.fifoPrefix;
        owns = b.owns;
    }

    /**
     * Returns options of jnats as queues need them: it reconnects indefinitely, notices within a minute
     * that a server is gone, and sends nothing after an outage that was given up before. Add servers, a
     * login and more, and connect with them. Errors of the connection go to the System.Logger
     * "pqbridge.connection", a warning once a minute.
     *
     * @return a builder of options
     */
    public static Options.Builder options() {
        return new Options.Builder()
                .maxReconnects(-1)
                .reconnectWait(Duration.ofMillis(500))
                .pingInterval(Duration.ofSeconds(20))
                .reconnectBufferSize(0)
                .errorListener(new Listener());
    }

    /**
     * Connects to the server that the environment variable NATS_URL names, or else to port 4222 here:
     * see {@link #connect(Options)}.
     *
     * @return a client that closes its connection
     */
    public static PqClient connect() {
        String url = System.getenv("NATS_URL");
        try {
            return connect(options().server(url == null || url.isEmpty() ? Options.DEFAULT_URL : url).build());
        } catch (IllegalArgumentException e) {
            throw new BadArgumentException("NATS_URL " + Wire.shown(url) + ": want one such as nats://host:4222");
        }
    }

    /**
     * Connects with options, best made of {@link #options()}. It tries until a server is there. A login
     * that is refused later is tried again, which other connections of jnats do only once.
     *
     * @param options the options
     * @return a client that closes its connection
     * @throws NotSentException if a server refuses the login
     * @throws CallInterruptedException if the thread is interrupted meanwhile
     */
    public static PqClient connect(Options options) {
        Wire.required("options", options);
        Servers servers = new Servers();
        Options all = options.getServerPool() != null
                ? options
                : new Options.Builder(options).serverPool(servers).build();
        try {
            // In another thread, as jnats ignores an interrupt of the one that connects.
            CompletableFuture<Connection> connecting = Threads.async(Threads.LONG, () -> {
                try {
                    return Nats.connectReconnectOnConnect(all);
                } catch (IOException | InterruptedException e) {
                    throw new CompletionException(e);
                }
            });
            Connection nc = await(connecting, servers);
            if (nc.getStatus() == Connection.Status.CLOSED) {
                throw new NotSentException("cannot connect to NATS: " + nc.getLastError(), false);
            }
            servers.connected(nc);
            Builder b = builder(nc);
            b.owns = true;
            return b.build();
        } catch (IOException e) {
            throw new NotSentException("cannot connect to NATS: " + e.getMessage(), false).because(e);
        } catch (InterruptedException e) {
            throw new CallInterruptedException("interrupted while connecting to NATS", false);
        }
    }

    private static Connection await(CompletableFuture<Connection> connecting, Servers servers)
            throws IOException, InterruptedException {
        try {
            return connecting.get();
        } catch (InterruptedException e) {
            servers.abandon();
            connecting.thenAccept(late -> Threads.LONG.execute(() -> closeQuietly(late)));
            throw e;
        } catch (ExecutionException e) {
            if (e.getCause() instanceof RuntimeException fault) {
                throw fault;
            }
            throw e.getCause() instanceof IOException io ? io : new IOException(e.getCause());
        }
    }

    private static void closeQuietly(Connection late) {
        try {
            late.close();
        } catch (InterruptedException e) {
            // the thread ends
        }
    }

    /**
     * Returns a client of a connection, which the caller closes.
     *
     * @param connection the connection, best made with {@link #options()}
     * @return the client
     */
    public static PqClient of(Connection connection) { return builder(connection).build(); }

    /**
     * Returns a builder of a client of a connection, which the caller closes.
     *
     * @param connection the connection, best made with {@link #options()}
     * @return the builder
     */
    public static Builder builder(Connection connection) {
        return new Builder(Wire.required("connection", connection));
    }

    /** Builds a client. All setters return this. */
    public static final class Builder {
        private final Connection connection;
        private Duration timeout = Duration.ofSeconds(10);
        private String prefix = "pq";
        private String fifoPrefix = "q";
        private String name;
        private boolean owns;

        private Builder(Connection connection) { this.connection = connection; }

        /**
         * Sets the first tokens of the subjects of priority queues, as PQ_SUBJECT_PREFIX of the bridge.
         *
         * @param prefix the tokens; the default is "pq"
         * @return this
         */
        public Builder prefix(String prefix) {
            this.prefix = checkPrefix("prefix", prefix);
            return this;
        }

        /**
         * Sets the first tokens of the subjects of FIFO queues, as PQ_FIFO_PREFIX of the bridge.
         *
         * @param prefix the tokens; the default is "q"
         * @return this
         */
        public Builder fifoPrefix(String prefix) {
            this.fifoPrefix = checkPrefix("fifoPrefix", prefix);
            return this;
        }

        /**
         * Bounds each request that does not wait for anything.
         *
         * @param timeout the time; the default is 10 s
         * @return this
         */
        public Builder timeout(Duration timeout) {
            this.timeout = Wire.checkDuration("timeout", timeout, Duration.ofMillis(1), Wire.TEN_YEARS);
            return this;
        }

        /**
         * Sets what this client says of itself, as the holder of leases and in the log of the bridges.
         *
         * @param name up to 128 bytes; the default is the host, the process id and the connection's name
         * @return this
         */
        public Builder name(String name) {
            this.name = Wire.checkHolder("name", name);
            return this;
        }

        /**
         * Makes the client.
         *
         * @return the client
         */
        public PqClient build() { return new PqClient(this); }
    }

    /** Names this process by its host, its process id and the name of the connection. */
    private static String defaultHolder(Connection nc) {
        String name = nc.getOptions().getConnectionName();
        String text = HOST + " pid " + ProcessHandle.current().pid() + (name == null ? "" : " " + name);
        String clean = text.replaceAll("[^\\x20-\\x7e]", "");
        return clean.substring(0, Math.min(clean.length(), Wire.MAX_HOLDER));
    }

    private static String host() {
        try {
            return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip(); // others may ask a name server
        } catch (IOException e) {
            try {
                return InetAddress.getLocalHost().getHostName();
            } catch (UnknownHostException unknown) {
                return "unknown host";
            }
        }
    }

    private static String checkPrefix(String what, String prefix) {
        if (prefix == null || !PREFIX.matcher(prefix).matches()) {
            throw new BadArgumentException(
                    what + " " + Wire.shown(prefix) + ": want tokens of a subject without wildcards, such as \"pq\"");
        }
        return prefix;
    }

    /**
     * Returns the connection.
     *
     * @return the connection
     */
    public Connection connection() { return link.nc; }

    /**
     * Returns the priority queue with a name. It sends nothing.
     *
     * @param name 1 to 128 letters, digits, - and _
     * @return the queue
     */
    public Queue priorityQueue(String name) { return new Queue(this, prefix, name, false); }

    /**
     * Returns the FIFO queue with a name. It sends nothing.
     *
     * @param name 1 to 128 letters, digits, - and _
     * @return the queue
     */
    public Queue fifoQueue(String name) { return new Queue(this, fifoPrefix, name, true); }

    /**
     * Lists the names of the priority queues that have items or settings, page by page.
     *
     * @return the names, sorted
     */
    public Stream<String> priorityQueues() { return names(prefix); }

    /**
     * Lists the names of the FIFO queues that have items or settings, page by page.
     *
     * @return the names, sorted
     */
    public Stream<String> fifoQueues() { return names(fifoPrefix); }

    /** Returns who says of himself that he changes a queue. */
    String agent() { return holder.replaceAll("[^\\x20-\\x7e]", "?") + " pqbridge-java"; }

    private Stream<String> names(String prefix) {
        return Pages.of(query -> link.read(prefix + ".list", query, timeout), "queues", Map.of())
                .map(queue -> queue.text("queue"));
    }

    /**
     * Acknowledges leases of any queues, in as few requests as possible. The items of one request are
     * removed together, or not at all; if some leases are lost, another request acknowledges the others.
     *
     * @param leases the leases
     * @return the error of each that failed. Call it again with those whose error is unknown:
     *     {@link LeaseLostException} then most likely means that the first call counted
     */
    public Map<Lease, PqException> ackAll(Collection<Lease> leases) { return Acks.all(leases); }

    /**
     * Gives back leases that come to pops which were interrupted, for some seconds at most, and closes
     * the connection if this client has made it.
     */
    @Override
    public void close() {
        link.await(Duration.ofSeconds(4));
        if (owns) {
            try {
                link.nc.close();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
