package io.github.pqbridge;

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
        int[] counts = new int[4];
        for (String part : text.split(" ")) {
            int at = java.util.List.of("done", "dead", "gone", "open").indexOf(part.split("=")[0]);
            if (at >= 0) {
                counts[at] = Integer.parseInt(part.substring(part.indexOf('=') + 1));
            }
        }
        return new Joined(counts[0], counts[1], counts[2], counts[3]);
    }
}
