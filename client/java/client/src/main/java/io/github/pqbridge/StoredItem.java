package io.github.pqbridge;

import io.nats.client.support.JsonValue;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * An item as {@link Queue#items} lists it: {@link #value} has the beginning of its value, and attempts
 * and successors are there if the query asks for them.
 */
public final class StoredItem extends FoundItem {
    private static final Map<String, String> LISTED = Map.of(
            "id", "Pq-Id", "place", "Pq-Place", "priority", "Pq-Priority", "pushed_at", "Pq-Pushed-At",
            "group", "Pq-Group", "state", "Pq-State", "deliveries", "Pq-Deliveries");

    private final Json json;

    private StoredItem(Json json, List<Header> headers) {
        super(json.bytes("value"), new Headers(headers),
                json.objects("attempts").stream().map(Attempt::of).toList(),
                json.objects("successors").stream().map(s -> new JobRef(s.text("queue"), s.text("id"))).toList(),
                (int) json.number("more_successors"));
        this.json = json;
    }

    static StoredItem of(Json json) {
        List<Header> headers = new ArrayList<>();
        JsonValue own = json.members().getOrDefault("headers", JsonValue.EMPTY_MAP);
        own.map.forEach((name, values) -> values.array.forEach(v -> headers.add(new Header(name, v.string))));
        LISTED.forEach((member, header) -> {
            JsonValue value = json.members().get(member);
            if (value != null) {
                headers.add(new Header(header, String.valueOf(value.object)));
            }
        });
        return new StoredItem(json, headers);
    }

    /**
     * Returns all that the reply says, with the names of the protocol.
     *
     * @return the members
     */
    public Map<String, Object> raw() { return json.toMap(); }

    /**
     * Reports whether there is more of the value than was asked for.
     *
     * @return whether the value is cut
     */
    public boolean valueCut() { return json.flag("value_cut"); }

    /**
     * Returns the beginning of what a finished job returned.
     *
     * @return the result
     */
    public Optional<byte[]> result() {
        return json.has("result_size") ? Optional.of(json.bytes("result")) : Optional.empty();
    }

    /**
     * Returns the reason of the last failure that gave one, or why a dead letter is one.
     *
     * @return the reason, "" for none
     */
    public String reason() { return json.text("reason"); }
}
