package io.github.pqbridge;

import java.nio.charset.StandardCharsets;

/**
 * Turns values into bytes and back.
 *
 * @param <T> the type of the values
 */
public interface Codec<T> {
    /** Bytes as they are, without a content type. */
    Codec<byte[]> BYTES = new Codec<>() {
        @Override
        public String contentType() { return ""; }

        @Override
        public byte[] encode(byte[] value) { return value; }

        @Override
        public byte[] decode(byte[] bytes) { return bytes; }
    };

    /** Text in UTF-8. */
    Codec<String> TEXT = new Codec<>() {
        @Override
        public String contentType() { return "text/plain"; }

        @Override
        public byte[] encode(String value) {
            Wire.checkText("a text", value);
            return value.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public String decode(byte[] bytes) { return new String(bytes, StandardCharsets.UTF_8); }
    };

    /**
     * Returns the type of the bytes, which goes into the header Content-Type.
     *
     * @return the type, such as "application/json", or "" for none
     */
    String contentType();

    /**
     * Returns the bytes of a value.
     *
     * @param value the value
     * @return its bytes
     */
    byte[] encode(T value);

    /**
     * Returns the value of bytes.
     *
     * @param bytes the bytes
     * @return the value
     */
    T decode(byte[] bytes);
}
