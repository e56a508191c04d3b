package io.github.pqbridge;

import io.nats.client.Message;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.function.Function;
import java.util.stream.Stream;

/** What the pages of a list have. */
final class Pages {
    private Pages() {}

    /** Asks for the first page, and for each other one once it is needed. */
    static Stream<Json> of(Function<Map<String, Object>, Message> ask, String member, Map<String, Object> query) {
        Function<Map<String, Object>, Json> page = asked -> Json.read(ask.apply(asked).getData(), member);
        return Stream.iterate(page.apply(query), Objects::nonNull, last -> {
            Map<String, Object> next = new LinkedHashMap<>(query);
            next.put("after", last.text("next"));
            return last.text("next").isEmpty() ? null : page.apply(next);
        }).flatMap(p -> p.objects(member).stream());
    }
}
