package io.github.pqbridge;

import java.util.HashMap;
import java.util.Map;

/**
 * What has become of the members of a joiner.
 *
 * @param done were acknowledged
 * @param dead became dead letters
 * @param gone left their queues in another way: popped, removed or expired
 * @param open had not ended when the time of the joiner was over
 */
public record Joined(int done, int dead, int gone, int open) {
    static Joined of(String text) {
        Map<String, Integer> counts = new HashMap<>(Map.of("done", 0, "dead", 0, "gone", 0, "open", 0));
        for (String part : text.split(" ")) {
            counts.put(part.split("=")[0], Integer.parseInt(part.substring(part.indexOf('=') + 1)));
        }
        return new Joined(counts.get("done"), counts.get("dead"), counts.get("gone"), counts.get("open"));
    }
}
