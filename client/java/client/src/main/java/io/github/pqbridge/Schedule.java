package io.github.pqbridge;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a queue pushes again and again, and when. All setters return this; schedules.md has the bounds. */
public final class Schedule {
    final Map<String, Object> members = new LinkedHashMap<>();
    private final Map<String, List<Object>> headers = new LinkedHashMap<>();

    private Schedule(String id) { set("id", id); }

    /**
     * Returns a schedule with that id.
     *
     * @param id the id
     * @return a schedule to set
     */
    public static Schedule of(String id) { return new Schedule(id); }

    /**
     * Fires at the times of an expression.
     *
     * @param cron such as "0 3 * * *"
     * @return this
     */
    public Schedule cron(String cron) { return set("cron", cron); }

    /**
     * Sets the time zone of the expression.
     *
     * @param zone such as "Europe/Berlin"
     * @return this
     */
    public Schedule zone(String zone) { return set("zone", zone); }

    /**
     * Fires again and again.
     *
     * @param every the time between
     * @return this
     */
    public Schedule every(Duration every) { return set("every", every); }

    /**
     * Sets the priority of the items.
     *
     * @param priority the priority
     * @return this
     */
    public Schedule priority(long priority) { return set("priority", priority); }

    /**
     * Sets the value of the items.
     *
     * @param value the bytes
     * @return this
     */
    public Schedule value(byte[] value) {
        return set("value", Base64.getEncoder().encodeToString(Wire.required("value", value)));
    }

    /**
     * Adds a header to the items, such as Type.
     *
     * @param name the name
     * @param value the value
     * @return this
     */
    public Schedule header(String name, String value) {
        headers.computeIfAbsent(Wire.checkHeaderName(name), n -> new ArrayList<>())
                .add(Wire.checkText("header " + name, value));
        return set("headers", headers);
    }

    /**
     * Fires up to that much later, by chance.
     *
     * @param jitter the time
     * @return this
     */
    public Schedule jitter(Duration jitter) { return set("jitter", jitter); }

    /**
     * Ends the schedule.
     *
     * @param until when
     * @return this
     */
    public Schedule until(Instant until) { return set("until", until); }

    /**
     * Sets any member of the protocol.
     *
     * @param name the name, such as "if_missed" or "overlap"
     * @param value text, a number, a boolean, a Duration, an Instant, or a List or Map of these
     * @return this
     */
    public Schedule set(String name, Object value) {
        members.put(Wire.checkText("a member", name), Settings.written(name, Wire.required(name, value)));
        return this;
    }
}
