package io.github.pqbridge;

import java.time.Instant;

/**
 * A delivery of a job that has ended, and counts.
 *
 * @param life the life of the job, from 1 on: a redrive begins another one
 * @param number which delivery of that life it was
 * @param from when the lease began, null if that is not known
 * @param to when the attempt ended
 * @param how "nak", "term", "ran out" for a lease that ran out, or "done"
 * @param holder who had the lease, "" if it did not say
 * @param reason what the holder said at the end, "" for nothing
 */
public record Attempt(int life, int number, Instant from, Instant to, String how, String holder, String reason) {
    static Attempt of(Json json) {
        return new Attempt(
                (int) json.number("life"), (int) json.number("number"), json.time("from"), json.time("to"),
                json.text("how"), json.text("holder"), json.text("reason"));
    }
}
