package io.github.pqbridge.driver;

import static io.github.pqbridge.driver.Lines.object;

import io.github.pqbridge.*;
import io.github.pqbridge.Queue;
import io.nats.client.Connection;
import io.nats.client.Options;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import java.util.stream.Stream;

/** The driver of this client. The project's testenv/clients defines the lines that it reads and prints. */
final class Driver {
    private static final Duration GRACE = Duration.ofSeconds(25); // of a stop that does not say it
    private static final Set<String> MEMBERS = Set.of(("n op queue queues fifo items value priority msgId unique delay"
            + " at ttl group weight keep headers type join joiner max expires count peek ackWait holder lease how result"
            + " retryDelay reason progress next what state match id ids place places name settings schedule wait worker"
            + " concurrency jobTimeout types timeout leases open follow").split(" "));

    private final PqClient client;
    private final Map<String, Lease> leases = new ConcurrentHashMap<>();
    private final Map<String, OpenJoin> joins = new ConcurrentHashMap<>();
    private final Map<String, List<Worker>> workers = new ConcurrentHashMap<>();

    private Driver(PqClient client) { this.client = client; }

    public static void main(String[] args) throws Exception {
        Driver driver = new Driver(PqClient.builder(connect())
                .prefix(variable("PQ_PREFIX", "pq"))
                .fifoPrefix(variable("PQ_FIFO_PREFIX", "q"))
                .timeout(Command.durationOf(variable("PQ_TIMEOUT", "10s"))).build());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            driver.workers.values().stream().flatMap(List::stream).toList().parallelStream().forEach(Worker::close);
            Runtime.getRuntime().halt(0);
        }));
        Lines.say("", object("event", "ready"));
        driver.obey(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        Runtime.getRuntime().halt(0);
    }

    private static String variable(String name, String absent) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? absent : value;
    }

    private static Connection connect() {
        Options.Builder options = PqClient.options()
                .server(System.getenv("NATS_URL"))
                .inboxPrefix(variable("PQ_INBOX_PREFIX", Options.DEFAULT_INBOX_PREFIX));
        if (System.getenv("NATS_USER") != null) {
            options.userInfo(System.getenv("NATS_USER"), System.getenv("NATS_PASSWORD"));
        }
        return PqClient.connect(options.build()).connection();
    }

    /** Carries out the commands, side by side. */
    private void obey(BufferedReader in) throws IOException {
        ExecutorService threads = Executors.newCachedThreadPool();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Command c = Command.read(line);
            threads.execute(() -> {
                Map<String, Object> answer = new HashMap<>();
                try {
                    answer.put("value", run(c));
                } catch (Exception e) {
                    e.printStackTrace();
                    answer.put("error", Lines.error(e));
                }
                Lines.say("\"n\":" + c.members().get("n") + ",", answer);
                if (c.text("op").equals("exit")) {
                    Runtime.getRuntime().halt(0);
                }
            });
        }
    }

    private Queue queue(Command c, String name) {
        return c.flag("fifo") ? client.fifoQueue(name) : client.priorityQueue(name);
    }

    private Object run(Command c) {
        if (!MEMBERS.containsAll(c.members().keySet())) {
            throw new UnsupportedOperationException("members of " + c);
        }
        Queue q = c.members().containsKey("queue") ? queue(c, c.text("queue")) : null;
        return switch (c.text("op")) {
            case "exit" -> null;
            case "push" -> {
                Pushed p = q.push(push(c, c));
                yield object("id", p.id(), "priority", p.priority(), "duplicate", p.duplicate());
            }
            case "pushMany" -> pushMany(c, q);
            case "all" -> {
                List<Push> items = c.objects("items").stream().map(item -> push(c, item)).toList();
                yield q.all(items.get(0), items.subList(1, items.size())).stream().map(Driver::pushed).toList();
            }
            case "open" -> {
                OpenJoin join = q.openJoin(push(c, c), c.duration("open", null));
                joins.put(join.id(), join);
                yield object("id", join.id());
            }
            case "close" -> none(joins.get(c.text("id"))::close);
            case "pop" -> {
                if (c.has("count")) {
                    yield q.popBatch(c.integer("count", 0), options(c)).stream().map(Lines::item).toList();
                }
                Optional<Item> item = !c.flag("peek") ? q.pop(options(c)) : c.flag("max") ? q.peekMax() : q.peek();
                yield item.map(Lines::item).orElse(null);
            }
            case "lease" -> c.has("count")
                    ? q.leaseBatch(c.integer("count", 0), options(c)).stream().map(this::held).toList()
                    : q.lease(options(c)).map(this::held).orElse(null);
            case "settle" -> none(() -> settle(c, leases.get(c.text("lease"))));
            case "ackAll" -> {
                List<Lease> all = c.texts("leases").stream().map(leases::get).toList();
                Map<Lease, PqException> errors = client.ackAll(all);
                yield all.stream().map(errors::get).map(e -> e == null ? null : failed(e)).toList();
            }
            case "look" -> look(c, q);
            case "manage" -> manage(c, q);
            case "result" -> result(c, q);
            case "call" -> {
                Push push = push(c, c);
                yield Lines.base64((c.has("wait") ? q.call(push, c.duration("wait", null)) : q.call(push)).value());
            }
            case "work" -> none(() -> work(c));
            case "stop" -> none(() -> workers.get(c.text("worker")).forEach(w -> w.stop(c.duration("timeout", GRACE))));
            default -> throw new UnsupportedOperationException("op " + c.text("op"));
        };
    }

    private static Object failed(PqException e) { return object("error", Lines.error(e)); }

    private static Object none(Runnable task) {
        task.run();
        return null;
    }

    // Pushing and popping

    private static Push push(Command c, Command item) {
        Push push = Push.of(item.bytes("value")).priority(item.priority());
        if (!item.has("msgId")) {
            push.noMsgId();
        }
        item.with("msgId", push::msgId).with("unique", push::unique).with("group", push::group).with("type", push::type)
                .withDuration("delay", push::delay).withDuration("ttl", push::ttl).withDuration("keep", push::keep)
                .withDuration("join", push::join).with("at", at -> push.at(Instant.parse(at)))
                .with("weight", weight -> push.weight(Integer.parseInt(weight)))
                .with("joiner", joiner -> push.joiner(new JobRef(c.text("queue"), joiner)));
        for (Object header : item.list("headers")) {
            List<?> pair = (List<?>) header;
            push.header((String) pair.get(0), headerValue(pair.get(1)));
        }
        return push;
    }

    private static String headerValue(Object value) {
        if (value instanceof String text) {
            return text;
        }
        StringBuilder text = new StringBuilder();
        for (byte b : new Command(Command.object(value)).bytes("base64")) {
            text.append((char) (b < 0 ? 0xDC00 | b & 0xFF : b));
        }
        return text.toString();
    }

    private static Map<String, Object> pushed(Pushed p) { return object("id", p.id(), "duplicate", p.duplicate()); }

    /** Pushes also what is before an item that cannot be made, as the client does if one cannot be sent. */
    private static List<Object> pushMany(Command c, Queue q) {
        List<Push> items = new ArrayList<>();
        List<Object> wrong = new ArrayList<>();
        for (Command item : c.objects("items")) {
            try {
                items.add(push(c, item));
            } catch (PqException e) {
                wrong.add(failed(e));
                break;
            }
        }
        Stream<Object> outcomes = q.pushMany(items).stream()
                .map(o -> o.error() == null ? pushed(o.pushed()) : failed(o.error()));
        return Stream.concat(outcomes, wrong.stream()).toList();
    }

    private static PopOptions options(Command c) {
        PopOptions options = PopOptions.of();
        if (c.flag("max")) {
            options.max();
        }
        c.withDuration("expires", options::expires).withDuration("ackWait", options::ackWait)
                .with("holder", options::holder);
        return options;
    }

    // Leases

    /** Keeps a lease under a name. */
    private synchronized Map<String, Object> held(Lease lease) {
        String name = "" + (leases.size() + 1);
        leases.put(name, lease);
        Map<String, Object> item = Lines.item(lease);
        item.putAll(object("lease", name, "deliveries", lease.deliveries()));
        return item;
    }

    private static void settle(Command c, Lease lease) {
        Duration delay = c.duration("delay", null);
        switch (c.text("how")) {
            case "ack" -> {
                Ack ack = c.has("result") ? Ack.of().result(c.bytes("result")) : Ack.of();
                c.objects("next").forEach(n ->
                        ack.next(n.text("queue"), Push.of(n.bytes("value")).priority(n.priority())));
                lease.ack(ack);
            }
            case "nak" -> {
                if (delay != null && c.has("retryDelay")) {
                    throw new IllegalArgumentException("delay and retryDelay, for which there is no method");
                } else if (delay != null) {
                    lease.nakAfter(delay, c.text("reason"));
                } else if (c.has("retryDelay")) {
                    lease.nakRetry(c.duration("retryDelay", null), c.text("reason"));
                } else {
                    lease.nak(c.text("reason"));
                }
            }
            case "snooze" -> lease.snooze(delay == null ? Duration.ZERO : delay);
            case "term" -> lease.term(c.text("reason"));
            case "extend" -> {
                if (c.has("progress")) {
                    lease.extend(c.text("progress").getBytes(StandardCharsets.UTF_8));
                } else {
                    lease.extend();
                }
            }
            default -> throw new UnsupportedOperationException("how " + c.text("how"));
        }
    }

    private static Object result(Command c, Queue q) {
        JobName job = c.has("msgId") ? JobName.msgId(c.text("msgId")) : JobName.id(c.text("id"));
        Duration wait = c.duration("wait", Duration.ZERO);
        JobResult r = c.flag("follow") ? q.follow(job, wait) : q.result(job, wait);
        Map<String, Object> answer = object("state", r.state().toString(), "error", r.error(), "reason", r.reason());
        answer.put("value", r.hasResult() ? Lines.base64(r.value()) : null);
        answer.put("progress", r.progress().map(Lines::base64).orElse(null));
        return answer;
    }

    // Looking and managing

    private static State state(String word) { return State.valueOf(word.toUpperCase(Locale.ROOT)); }

    private Object look(Command c, Queue q) {
        String id = c.text("id");
        return switch (c.text("what")) {
            case "len" -> q.len();
            case "info" -> q.info();
            case "items" -> {
                ItemsQuery query = ItemsQuery.of();
                c.with("state", word -> query.state(state(word))).with("match", query::match);
                yield q.items(query).map(StoredItem::raw).toList();
            }
            case "get" -> found(q.get(id));
            case "rank" -> {
                Rank r = c.flag("max") ? q.rankMax(id) : q.rank(id);
                yield object("rank", r.rank(), "atLeast", r.atLeast());
            }
            case "queues" -> (c.flag("fifo") ? client.fifoQueues() : client.priorityQueues()).toList();
            case "schedules" -> q.schedules().toList();
            default -> throw new UnsupportedOperationException("what " + c.text("what"));
        };
    }

    private static Map<String, Object> found(FoundItem item) {
        Map<String, Object> answer = Lines.item(item);
        answer.putAll(object("state", item.state().toString(), "parent", item.parent().map(Lines::ref).orElse(null),
                "attempts", orNull(item.attempts().stream().map(Lines::attempt).toList()),
                "successors", orNull(item.successors().stream().map(Lines::ref).toList())));
        return answer;
    }

    private static List<?> orNull(List<?> list) { return list.isEmpty() ? null : list; }

    private static Object manage(Command c, Queue q) {
        String id = c.text("id");
        boolean isOne = !c.has("ids") && !c.has("places");
        List<JobName> several = Stream.concat(
                c.texts("ids").stream().map(JobName::id), c.texts("places").stream().map(JobName::place)).toList();
        return switch (c.text("what")) {
            case "move" -> {
                JobName one = c.has("place") ? JobName.place(c.text("place")) : isOne ? JobName.id(id) : null;
                yield isOne
                        ? object("place", q.move(one, c.priority()))
                        : edited(q.moveItems(several, c.priority()), e -> object("place", e.place()));
            }
            case "remove" -> isOne ? none(() -> q.remove(id)) : edited(q.removeItems(several), e -> Map.of());
            case "release" -> isOne ? none(() -> q.release(id)) : edited(q.releaseItems(several), e -> Map.of());
            case "purge" -> object("purged", c.has("state") ? q.purge(state(c.text("state"))) : q.purge());
            case "redrive" -> {
                if (isOne && !c.has("id")) {
                    yield object("redriven", "" + q.redrive(c.integer("max", 1000)));
                }
                List<Edited> all = q.redriveItems(isOne ? List.of(JobName.id(id)) : several);
                if (isOne && all.get(0).error() != null) {
                    throw all.get(0).error();
                }
                List<Object> homes = edited(all, e -> object("home", e.home()));
                yield isOne ? homes.get(0) : homes;
            }
            case "configure" -> {
                Settings settings = Settings.of();
                for (Map.Entry<String, Object> s : c.map("settings").entrySet()) {
                    String name = s.getKey();
                    settings = s.getValue() == null ? settings.reset(name) : settings.set(name, s.getValue());
                }
                yield q.configure(settings);
            }
            case "pause" -> c.has("group") ? none(() -> q.pause(c.text("group"))) : none(q::pause);
            case "resume" -> c.has("group") ? none(() -> q.resume(c.text("group"))) : none(q::resume);
            case "schedule" -> {
                Schedule schedule = Schedule.of(c.text("name"));
                c.map("schedule").forEach(schedule::set);
                yield q.schedule(schedule);
            }
            case "unschedule" -> none(() -> q.unschedule(c.text("name")));
            default -> throw new UnsupportedOperationException("what " + c.text("what"));
        };
    }

    /** Returns what became of each of several items: its error, or something else. */
    private static List<Object> edited(List<Edited> all, Function<Edited, Object> otherwise) {
        return all.stream().map(e -> e.error() == null ? otherwise.apply(e) : failed(e.error())).toList();
    }

    // Workers

    private void work(Command c) {
        String name = c.text("worker");
        List<Worker> all = new ArrayList<>();
        for (String queue : c.has("queues") ? c.texts("queues") : List.of(c.text("queue"))) {
            Worker.Builder b = Worker.builder(queue(c, queue)).concurrency(c.integer("concurrency", 1));
            c.withDuration("ackWait", b::ackWait).with("holder", b::holder).withDuration("jobTimeout", b::jobTimeout)
                    .withDuration("retryDelay", b::retryDelay);
            if (c.flag("max")) {
                b.max();
            }
            if (c.has("types")) {
                c.texts("types").forEach(type -> b.handle(type, Handlers.of(name, type)));
            } else {
                b.handle(Handlers.of(name, null));
            }
            all.add(b.build());
        }
        workers.put(name, all);
        all.forEach(worker -> worker.start().ended().whenComplete((none, error) -> {
            if (error != null) {
                Lines.say("", object("event", "error", "worker", name, "class", Lines.classOf(error)));
            }
        }));
    }
}
