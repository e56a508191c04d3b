package io.github.pqbridge;

import io.nats.client.Connection;
import java.net.InetAddress;
import java.net.UnknownHostException;

/** Names this process. */
final class Holder {
    private static final int LONGEST = 100; // characters, of which few are not ASCII

    private Holder() {}

    /** Returns the host, the process id and the name of the connection. */
    static String of(Connection nc) {
        String host;
        try {
            host = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException e) {
            host = "unknown host";
        }
        String name = nc.getOptions().getConnectionName();
        String text = host + " pid " + ProcessHandle.current().pid() + (name == null ? "" : " " + name);
        String clean = text.replaceAll("[^\\x20-\\x7e]", "");
        return clean.length() > LONGEST ? clean.substring(0, LONGEST) : clean;
    }
}
