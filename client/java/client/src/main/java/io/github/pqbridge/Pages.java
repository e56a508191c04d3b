package io.github.pqbridge;

import io.nats.client.Message;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.function.Function;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** Iterates over what the pages of a list have. */
final class Pages implements Iterator<Json> {
    private final Function<Map<String, Object>, Message> ask;
    private final String member;
    private final Map<String, Object> query;
    private List<Json> page = List.of();
    private int at;
    private boolean last;

    private Pages(Function<Map<String, Object>, Message> ask, String member, Map<String, Object> query) {
        this.ask = ask;
        this.member = member;
        this.query = new LinkedHashMap<>(query);
    }

    static Stream<Json> of(Function<Map<String, Object>, Message> ask, String member, Map<String, Object> query) {
        Iterator<Json> pages = new Pages(ask, member, query);
        return StreamSupport.stream(Spliterators.spliteratorUnknownSize(pages, Spliterator.ORDERED), false);
    }

    @Override
    public boolean hasNext() {
        while (at == page.size() && !last) {
            Json reply = Json.read(ask.apply(query).getData(), member);
            page = reply.objects(member);
            at = 0;
            last = reply.text("next").isEmpty();
            query.put("after", reply.text("next"));
        }
        return at < page.size();
    }

    @Override
    public Json next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return page.get(at++);
    }
}
