package io.github.pqbridge;

/**
 * One header. Bytes of a value that are not UTF-8 are characters from U+DC80 to U+DCFF, one for each
 * byte from 0x80 to 0xFF: see {@link #bytes}.
 *
 * @param name the name; names are compared byte by byte
 * @param value the value, in one line
 */
public record Header(String name, String value) {
    /**
     * Returns the value as it is sent.
     *
     * @return the bytes
     */
    public byte[] bytes() { return Wire.encode(value); }
}
