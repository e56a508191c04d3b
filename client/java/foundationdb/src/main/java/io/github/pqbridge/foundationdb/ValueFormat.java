package io.github.pqbridge.foundationdb;

/** How values are stored: the setting {@code PQ_VALUE_FORMAT} of the bridges. */
public enum ValueFormat {
    /** The bytes as they are, as the recipes for Python do. This is a bridge's default. */
    RAW,
    /** A tuple of one byte string, as the recipes for Java do. */
    TUPLE
}
