package io.github.pqbridge.sample;

import java.time.Duration;

/**
 * A letter.
 *
 * @param to who gets it
 * @param takes how long it takes to send, null for no time
 */
public record Letter(String to, Duration takes) {}
