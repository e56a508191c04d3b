package io.github.pqbridge;

import io.nats.client.Connection;
import io.nats.client.ErrorListener;
import java.lang.System.Logger;
import java.lang.System.Logger.Level;

/** Tells the link of a connection what the server refuses, and logs errors, each minute a warning. */
final class Listener implements ErrorListener {
    private static final Logger LOG = System.getLogger("pqbridge.connection");

    private final Seldom seldom = new Seldom();

    @Override
    public void errorOccurred(Connection nc, String error) {
        Link link = Link.known(nc);
        if (link != null) {
            link.refusals.notice(error);
        }
        log(Wire.hideTokens(error));
    }

    @Override
    public void exceptionOccurred(Connection nc, Exception e) { log(e.toString()); }

    private void log(String text) { LOG.log(seldom.level("error", Level.WARNING), "the connection to NATS: " + text); }
}
