package io.github.pqbridge;

/**
 * What became of one of many pushes.
 *
 * @param pushed the item, null if it failed
 * @param error why it failed, null if it did not
 */
public record PushOutcome(Pushed pushed, PqException error) {
    /**
     * Returns the pushed item.
     *
     * @return the item
     * @throws PqException if the push failed
     */
    public Pushed get() {
        if (error != null) {
            throw error;
        }
        return pushed;
    }
}
