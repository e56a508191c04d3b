package io.github.pqbridge.driver;

import io.github.pqbridge.*;
import io.nats.client.support.Encoding;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** What the driver prints. */
final class Lines {
    private static final Set<String> CLASSES = Set.of("BadArgument", "BadRequest", "NotFound", "LeaseLost", "Leased",
            "Joined", "Chain", "TooLarge", "Overloaded", "Internal", "Unavailable", "NoBridge", "BadReply", "NotSent",
            "UnknownOutcome", "NoHeartbeat", "JobFailed", "NotDone");

    private Lines() {}

    /** Prints an event or, with its number as a prefix, the answer to a command. */
    static void say(String prefix, Map<String, Object> line) {
        System.out.writeBytes(("{" + prefix + json(line).substring(1) + "\n").getBytes(StandardCharsets.UTF_8));
    }

    /** Returns JSON as answers have it: numbers are text. */
    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            return map.entrySet().stream().map(m -> json(m.getKey()) + ":" + json(m.getValue()))
                    .collect(Collectors.joining(",", "{", "}"));
        } else if (value instanceof List<?> list) {
            return list.stream().map(Lines::json).collect(Collectors.joining(",", "[", "]"));
        }
        boolean isText = value instanceof String || value instanceof Number;
        return isText ? '"' + Encoding.jsonEncode(value.toString()) + '"' : String.valueOf(value);
    }

    /** Returns an object of names and values, without the values that are null. */
    static Map<String, Object> object(Object... members) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < members.length; i += 2) {
            if (members[i + 1] != null) {
                object.put((String) members[i], members[i + 1]);
            }
        }
        return object;
    }

    static String base64(byte[] bytes) { return Base64.getEncoder().encodeToString(bytes); }

    static Map<String, Object> item(Item i) {
        return object("id", i.id(), "priority", i.priority(), "value", base64(i.value()), "group", i.group(),
                "headers", i.headers().list().stream().map(Lines::header).toList());
    }

    private static List<Object> header(Header h) {
        boolean isText = Arrays.equals(h.bytes(), h.value().getBytes(StandardCharsets.UTF_8));
        return List.of(h.name(), isText ? h.value() : object("base64", base64(h.bytes())));
    }

    static Map<String, Object> ref(JobRef job) { return object("queue", job.queue(), "id", job.id()); }

    static Map<String, Object> attempt(Attempt a) {
        return object("life", a.life(), "number", a.number(), "how", a.how(),
                "holder", a.holder().isEmpty() ? null : a.holder(), "reason", a.reason().isEmpty() ? null : a.reason());
    }

    static Map<String, Object> error(Throwable error) {
        PqException e = error instanceof PqException pq && !(pq instanceof JobFailedException) ? pq : null;
        return object("class", classOf(error), "text", error.toString(), "code", e == null ? 0 : e.code(),
                "reason", e == null ? "" : e.reason(), "unknown", e != null && e.unknown(),
                "job", e instanceof NotDoneException n ? n.id() : null);
    }

    static String classOf(Throwable error) {
        if (error instanceof UnsupportedOperationException) {
            return "Unsupported";
        } else if (error instanceof UnavailableException e && e.code() == 0) {
            return "Timeout"; // a request that only reads has no reply
        }
        for (Class<?> c = error.getClass(); c != Object.class; c = c.getSuperclass()) {
            String name = c.getSimpleName().replace("Exception", "");
            if (CLASSES.contains(name)) {
                return name;
            }
        }
        return error instanceof IllegalArgumentException ? "BadArgument" : error.getClass().getName();
    }
}
