package io.github.pqbridge;

import io.github.pqbridge.Push.Prepared;
import io.nats.client.Message;
import io.nats.client.NUID;
import java.io.ByteArrayOutputStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/** Pushes items, again if that may help and cannot push them twice. */
final class Pushes {
    private static final int MAX_ITEMS = 4096; // of one request
    private static final int MAX_FRAMES = 1024; // of a request of many: with message ids, more may not fit
    private static final int MAX_BYTES = 4 << 20; // of a request of many: larger ones are no faster
    private static final int REPLY = 512; // bytes of a reply, without its ids
    private static final int ID = 59; // bytes of each id in a reply
    private static final long LEAST = TimeUnit.MILLISECONDS.toNanos(50); // for an attempt

    private Pushes() {}

    static Pushed one(Queue q, Push push) { return repeat(q, List.of(prepare(q, push, NUID.nextGlobal(), 0))).get(0); }

    static List<Pushed> batch(Queue q, List<Push> items) {
        if (Wire.required("items", items).isEmpty() || items.size() > MAX_ITEMS) {
            throw new BadArgumentException(items.size() + " items in one request: want 1 to " + MAX_ITEMS);
        }
        String own = NUID.nextGlobal();
        List<Prepared> batch = new ArrayList<>();
        boolean named = items.stream().anyMatch(p -> p != null && p.has("Nats-Msg-Id")); // then the others have none
        for (Push push : items) {
            batch.add(prepare(q, push, named ? "" : own + "." + batch.size(), batch.size()));
        }
        return repeat(q, batch);
    }

    static List<PushOutcome> many(Queue q, Iterable<Push> items) {
        List<Push> all = new ArrayList<>();
        Wire.required("items", items).forEach(all::add);
        List<Prepared> ready = new ArrayList<>();
        PqException wrong = null;
        String own = NUID.nextGlobal(); // begins the message ids of this call
        try {
            for (Push push : all) {
                ready.add(prepare(q, push, own + "." + ready.size(), 0));
            }
        } catch (BadArgumentException e) {
            wrong = e;
        }

        List<PushOutcome> outcomes = new ArrayList<>();
        PqException failure = null;
        int limit = MAX_FRAMES;
        while (failure == null && outcomes.size() < ready.size()) {
            int n = outcomes.size();
            List<Prepared> batch = fitting(q, ready.subList(n, Math.min(ready.size(), n + limit)));
            try {
                repeat(q, batch).forEach(pushed -> outcomes.add(new PushOutcome(pushed, null)));
            } catch (PqException e) {
                if (batch.size() > 1 && (e instanceof BadRequestException || e instanceof TooLargeException)) {
                    limit = batch.size() / 2; // look for the item at fault
                } else {
                    failure = e;
                    outcomes.addAll(Collections.nCopies(batch.size(), new PushOutcome(null, e)));
                }
            }
        }
        if (failure == null && wrong != null) {
            failure = wrong;
            outcomes.add(new PushOutcome(null, wrong));
        }
        if (failure != null) {
            String why = "not sent because of an earlier item: " + failure.getMessage();
            PqException rest = new NotSentException(why, true);
            outcomes.addAll(Collections.nCopies(all.size() - outcomes.size(), new PushOutcome(null, rest)));
        }
        return outcomes;
    }

    /** Returns the first items that fit into one request, and whose ids fit into its reply. */
    private static List<Prepared> fitting(Queue q, List<Prepared> items) {
        long most = q.link.maxPayload() > 0 ? q.link.maxPayload() : MAX_BYTES;
        long room = Math.min(most, MAX_BYTES);
        int n = 0;
        while (n < items.size() && n < (most - REPLY) / ID && room >= items.get(n).size()) {
            room -= items.get(n++).size();
        }
        return items.subList(0, Math.max(1, n));
    }

    private static Prepared prepare(Queue q, Push push, String msgId, int before) {
        Prepared item = Wire.required("push", push).prepare(msgId, before);
        if (q.isFifo() && item.priority() != 0) {
            throw new BadArgumentException("priority " + item.priority() + " in a FIFO queue: want none");
        }
        return item;
    }

    /** Pushes items, all or none, until the timeout of the client is over. */
    private static List<Pushed> repeat(Queue q, List<Prepared> batch) {
        long end = System.nanoTime() + q.client.timeout.toNanos();
        boolean repeatable = batch.stream().allMatch(Prepared::hasId);
        boolean unknown = false;
        Pause pause = new Pause();
        while (true) {
            PqException failure;
            try {
                long left = end - System.nanoTime();
                if (repeatable) { // time for a second attempt, if a reply is lost
                    left = Math.min(left, q.client.timeout.toNanos() / 2);
                }
                return send(q, batch, Duration.ofNanos(Math.max(LEAST, left)));
            } catch (PqException e) {
                failure = e;
            }
            unknown |= failure.unknown();
            long left = end - System.nanoTime();
            boolean again = failure.passing() && !failure.reason().equals("full") && (!unknown || repeatable);
            if (again && left > 0) {
                q.link.pause(Math.min(left, pause.nanos()), unknown);
                if (end - System.nanoTime() >= TimeUnit.MILLISECONDS.toNanos(1)) {
                    continue; // an attempt without any time would only make the outcome unknown
                }
            }
            throw unknown && !failure.unknown() ? after(failure) : failure;
        }
    }

    /** Returns the error of a request whose last attempt failed, after one that may have counted. */
    private static PqException after(PqException last) {
        String text = "the outcome of an earlier attempt is unknown; the last one: " + last.getMessage();
        PqException error = last instanceof CallInterruptedException
                ? new CallInterruptedException(text, true)
                : new UnknownOutcomeException(text, 0, "", true);
        return error.because(last);
    }

    private static List<Pushed> send(Queue q, List<Prepared> batch, Duration timeout) {
        Prepared first = batch.get(0);
        if (batch.size() > 1 || !Wire.arePlain(first.headers())) { // which jnats would refuse
            return sendFrames(q, batch, timeout);
        }
        List<Header> headers = new ArrayList<>(first.headers());
        if (first.priority() != 0) {
            headers.add(new Header("Pq-Priority", Long.toString(first.priority())));
        }
        Message reply = q.link.request(q.subject("push"), first.value(), headers, timeout, true, true);
        Json body = Json.read(reply.getData(), "id");
        // A duplicate of its own earlier attempt is none.
        boolean duplicate = body.flag("duplicate") && !first.ownId();
        return List.of(new Pushed(q.name(), body.text("id"), body.number("priority"), duplicate));
    }

    private static List<Pushed> sendFrames(Queue q, List<Prepared> batch, Duration timeout) {
        ByteArrayOutputStream data = new ByteArrayOutputStream(batch.stream().mapToInt(Prepared::size).sum());
        batch.forEach(item -> data.writeBytes(item.frame(0, "")));
        Message reply = q.link.request(q.subject("push.batch"), data.toByteArray(), List.of(), timeout, true, true);
        Json body = Json.read(reply.getData(), "ids");
        List<String> ids = body.values("ids").stream().map(v -> v.string).toList();
        if (ids.size() != batch.size()) {
            throw new BadReplyException(ids.size() + " ids for " + batch.size() + " items");
        }
        Set<Integer> duplicates = new HashSet<>();
        body.values("duplicates").forEach(v -> duplicates.add(v.number.intValue()));
        List<Pushed> pushed = new ArrayList<>();
        for (int i = 0; i < ids.size(); i++) {
            Prepared item = batch.get(i);
            boolean duplicate = duplicates.contains(i) && !item.ownId();
            pushed.add(new Pushed(q.name(), ids.get(i), item.priority(), duplicate));
        }
        return pushed;
    }
}
