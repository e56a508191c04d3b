package io.github.pqbridge.driver;

import io.nats.client.support.JsonParseException;
import io.nats.client.support.JsonParser;
import io.nats.client.support.JsonValue;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A command, or an object in one: texts, booleans, lists, maps, null, and Long for integers. */
record Command(Map<String, Object> members) {
    private static final Pattern PART = Pattern.compile("(-?[0-9]+(?:\\.[0-9]+)?)(ms|us|ns|s|m|h)");
    private static final Map<String, Double> NANOS =
            Map.of("ns", 1.0, "us", 1e3, "ms", 1e6, "s", 1e9, "m", 60e9, "h", 3600e9);

    static Command read(String line) {
        try {
            return new Command(object(plain(JsonParser.parse(line, JsonParser.Option.KEEP_NULLS))));
        } catch (JsonParseException e) {
            throw new IllegalArgumentException(line, e);
        }
    }

    private static Object plain(JsonValue v) {
        if (v.map != null) {
            Map<String, Object> map = new LinkedHashMap<>();
            v.map.forEach((name, member) -> map.put(name, plain(member)));
            return map;
        }
        Object one = v.i != null ? (Object) (long) v.i : v.object;
        return v.array != null ? v.array.stream().map(Command::plain).toList() : one;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) {
        return (Map<String, Object>) value;
    }

    boolean has(String name) { return members.get(name) != null; }

    boolean flag(String name) { return Boolean.TRUE.equals(members.get(name)); }

    String text(String name) { return has(name) ? (String) members.get(name) : ""; }

    byte[] bytes(String name) { return bytesOf(text(name)); }

    int integer(String name, int absent) { return has(name) ? Integer.parseInt(text(name)) : absent; }

    long priority() { return has("priority") ? Long.parseLong(text("priority")) : 0; }

    Duration duration(String name, Duration absent) { return has(name) ? durationOf(text(name)) : absent; }

    Map<String, Object> map(String name) { return object(members.get(name)); }

    List<?> list(String name) { return has(name) ? (List<?>) members.get(name) : List.of(); }

    List<String> texts(String name) { return list(name).stream().map(String.class::cast).toList(); }

    List<Command> objects(String name) { return list(name).stream().map(o -> new Command(object(o))).toList(); }

    /** Does something with a text, unless it is absent. */
    Command with(String name, Consumer<String> use) {
        if (has(name)) {
            use.accept(text(name));
        }
        return this;
    }

    Command withDuration(String name, Consumer<Duration> use) {
        return with(name, text -> use.accept(durationOf(text)));
    }

    static byte[] bytesOf(String base64) { return Base64.getDecoder().decode(base64); }

    static Duration durationOf(String text) {
        double nanos = 0;
        for (Matcher part = PART.matcher(text); part.find(); ) {
            nanos += Double.parseDouble(part.group(1)) * NANOS.get(part.group(2));
        }
        return Duration.ofNanos(Math.round(nanos));
    }
}
