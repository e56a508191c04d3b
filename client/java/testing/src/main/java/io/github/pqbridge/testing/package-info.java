/** Programs that tests of the other modules start: a bridge with its NATS server. */
package io.github.pqbridge.testing;
