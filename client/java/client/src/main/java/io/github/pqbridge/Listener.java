package io.github.pqbridge;

import io.nats.client.ErrorListener;

/** Tells the link of a connection what the server refuses, and logs other errors. */
final class Listener implements ErrorListener {}
