package io.github.pqbridge;

/** Thrown by a {@link Handler} to make its job a dead letter at once. */
public class Drop extends RuntimeException {
    /**
     * Gives the job up.
     *
     * @param reason why; at most 256 bytes are kept
     */
    public Drop(String reason) {
        super(Wire.required("reason", reason));
    }
}
