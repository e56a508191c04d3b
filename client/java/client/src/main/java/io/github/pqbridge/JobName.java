package io.github.pqbridge;

import java.util.List;

/**
 * Names a job or an item in a request.
 *
 * @param kind the member of the protocol: "id", "msg_id" or "place"
 * @param name the name
 */
public record JobName(String kind, String name) {
    /**
     * Checks the parts; use {@link #id}, {@link #msgId} or {@link #place}.
     *
     * @param kind the member
     * @param name the name
     * @throws BadArgumentException for another kind, and an empty name
     */
    public JobName {
        if (!List.of("id", "msg_id", "place").contains(kind) || Wire.checkText(kind, name).isEmpty()) {
            throw new BadArgumentException(
                    "a job by its " + kind + " " + Wire.shown(name) + ": want an id, msg_id or place");
        }
    }

    /**
     * Names a job by the id that its push returned.
     *
     * @param id the id
     * @return the name
     */
    public static JobName id(String id) { return new JobName("id", id); }

    /**
     * Names a job by the message id of its push, within the duplicate window.
     *
     * @param msgId the message id
     * @return the name
     */
    public static JobName msgId(String msgId) { return new JobName("msg_id", msgId); }

    /**
     * Names an item by its place, until it leaves it: so an edit of unknown outcome can be repeated.
     *
     * @param place the place
     * @return the name
     */
    public static JobName place(String place) { return new JobName("place", place); }
}
