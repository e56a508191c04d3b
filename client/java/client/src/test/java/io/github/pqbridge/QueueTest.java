package io.github.pqbridge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Requests to a bridge. */
@Timeout(value = 2, unit = TimeUnit.MINUTES)
class QueueTest {
    private static TestServer server;
    private static PqClient client;

    private Queue queue;

    @BeforeAll
    static void start() {
        server = TestServer.bridge();
        client = server.client();
    }

    @AfterAll
    static void stop() throws InterruptedException {
        client.close();
        client.connection().close();
        server.close();
    }

    @BeforeEach
    void name() {
        queue = client.priorityQueue("q" + UUID.randomUUID());
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private Lease leaseOne() {
        return queue.lease(PopOptions.of().expires(TestServer.PATIENCE)).orElseThrow();
    }

    /** Smaller priorities come first, among equals the oldest; a pop of the largest takes the other end. */
    @Test
    void servesByPriorityThenAge() {
        for (String text : List.of("5 a", "1 b", "1 c", "-9223372036854775808 d", "9223372036854775807 e")) {
            queue.push(Push.of(text).priority(Long.parseLong(text.split(" ")[0])));
        }

        assertEquals("9223372036854775807 e", queue.peekMax().orElseThrow().text());
        assertEquals(Long.MIN_VALUE, queue.peek().orElseThrow().priority());
        assertEquals("9223372036854775807 e", queue.pop(PopOptions.of().max()).orElseThrow().text());
        List<String> rest = queue.popBatch(10, PopOptions.of()).stream().map(Item::text).toList();

        assertEquals(List.of("-9223372036854775808 d", "1 b", "1 c", "5 a"), rest);
        assertEquals(Optional.empty(), queue.pop().map(Item::id));
        assertEquals(Optional.empty(), queue.peek().map(Item::id));
    }

    /** Repeated headers, text beyond ASCII and bytes that are not UTF-8 come back on every way. */
    @Test
    void headersComeBackAsTheyWere() {
        List<Header> sent = List.of(
                new Header("Lang", "de"), new Header("Lang", "fr"),
                new Header("Odd", "a\uDCFFb\uDC80"), new Header("Empty", ""));
        byte[] binary = new byte[200_000]; // too large for a message with several frames
        binary[1] = -1;

        for (byte[] value : List.of(bytes("grüße"), binary)) {
            Push push = Push.of(value).type("größe").group("Müller").msgId("ü-17 " + value.length).headers(sent);
            String id = queue.push(push).id();
            List<Item> seen = new ArrayList<>(List.of(queue.peek().orElseThrow(), queue.get(id)));
            Lease lease = leaseOne();
            lease.snooze(Duration.ZERO);
            seen.add(lease);
            seen.add(queue.pop().orElseThrow());

            for (Item item : seen) {
                assertArrayEquals(value, item.value());
                assertEquals("größe", item.type());
                assertEquals("Müller", item.group());
                assertEquals(List.of("de", "fr"), item.headers().all("Lang"));
                assertEquals("", item.headers().get("Empty"));
                Header odd = new Header("Odd", item.headers().get("Odd"));
                assertArrayEquals(new byte[] {'a', -1, 'b', -128}, odd.bytes());
            }
        }
    }

    /** A second push with the same message id or unique key adds nothing, and is told so. */
    @Test
    void duplicatesAddNothing() {
        Pushed first = queue.push(Push.of("a").msgId("one").unique("key"));

        assertEquals(new Pushed(queue.name(), first.id(), 0, true), queue.push(Push.of("b").msgId("one").priority(3)));
        assertTrue(queue.push(Push.of("c").unique("key")).duplicate());
        assertTrue(queue.push(Push.of("c").unique("key").header("Lang", "ü")).duplicate());
        assertFalse(first.duplicate());
        assertEquals(1, queue.len());
    }

    /** A batch is pushed whole or not at all. */
    @Test
    void batchIsAllOrNone() {
        List<Pushed> pushed = queue.pushBatch(List.of(Push.of("a").priority(2), Push.of("ü").priority(1)));
        assertEquals("ü", queue.get(pushed.get(1).id()).text());

        List<Push> wrong = List.of(Push.of("c"), Push.of("d").header("Nats-Rollup", "all"));
        assertThrows(BadRequestException.class, () -> queue.pushBatch(wrong));
        assertEquals(2, queue.len());
    }

    /** Of many pushes, the ones before a wrong one are in the queue, and the ones after it were not sent. */
    @Test
    void manyPushesStopAtTheFirstFailure() {
        List<Push> items = new ArrayList<>();
        for (int i = 0; i < 3000; i++) {
            items.add(Push.of("" + i).msgId("m" + i));
        }
        items.add(2500, Push.of("wrong").header("Nats-Rollup", "all"));

        List<PushOutcome> outcomes = queue.pushMany(items);

        assertEquals(2500, queue.len());
        assertEquals("0", queue.get(outcomes.get(0).get().id()).text());
        assertThrows(BadRequestException.class, () -> outcomes.get(2500).get());
        assertThrows(NotSentException.class, () -> outcomes.get(3000).get());
        assertEquals(3001, outcomes.size());
    }

    /** An acknowledged job is done, with its result; its lease counts no more. */
    @Test
    void acknowledgedJobHasItsResult() {
        String id = queue.push(Push.of("job").keep(Duration.ofHours(1))).id();
        assertEquals(State.READY, queue.result(id).state());
        Lease lease = leaseOne();
        assertEquals(1, lease.deliveries());
        assertTrue(lease.extend(bytes("half")).isPresent());
        assertArrayEquals(bytes("half"), queue.result(id).progress().orElseThrow());

        lease.ack(Ack.of().result("fertig", Codec.TEXT).contentType("text/größe"));

        JobResult result = queue.result(JobName.id(id), TestServer.PATIENCE);
        assertEquals(State.DONE, result.state());
        assertEquals("fertig", result.text());
        assertEquals("text/größe", result.contentType());
        assertTrue(result.hasResult());
        assertEquals(Map.of(), client.ackAll(List.of(lease))); // it counted
        assertThrows(LeaseLostException.class, () -> lease.nak("late"));
    }

    /** What fails comes back, or is a dead letter with its reason, which a redrive sends back. */
    @Test
    void failedJobsComeBackOrDie() {
        queue.configure(Settings.of().maxDeliver(2).trail(8));
        String id = queue.push(Push.of("job").keep(Duration.ofHours(1))).id();

        leaseOne().nakRetry(Duration.ZERO, "not enough Käse");
        assertEquals("not enough Käse", queue.result(id).failure());
        leaseOne().snooze(Duration.ZERO);
        Lease last = leaseOne();
        assertTrue(last.lastTry());
        last.nakAfter(Duration.ZERO, "disk full: zu groß");

        JobResult result = queue.result(id);
        assertEquals(State.DEAD, result.state());
        assertEquals("disk full: zu groß", result.failure());
        assertEquals("max_deliver", result.reason());
        FoundItem dead = queue.get(id);
        assertEquals(List.of("nak", "nak"), dead.attempts().stream().map(Attempt::how).toList());
        assertEquals("not enough Käse", dead.attempts().get(0).reason());
        assertThrows(JobFailedException.class, result::orThrow);

        Queue letters = client.priorityQueue(queue.name() + "-dead");
        assertEquals(1, letters.redrive(10));
        leaseOne().term("größer");
        assertEquals("größer", queue.result(id).failure());
        Edited back = letters.redriveItems(List.of(JobName.id(id))).get(0);
        assertEquals(queue.name(), back.home());
        assertEquals(1, queue.len());
    }

    /** Of several leases, the lost ones alone are not acknowledged. */
    @Test
    void lostLeasesDoNotKeepOthers() {
        for (int i = 0; i < 5; i++) {
            queue.push("" + i);
        }
        List<Lease> leases = queue.leaseBatch(5, PopOptions.of().holder("Jürgen"));
        queue.remove(leases.get(3).id());

        Map<Lease, PqException> failed = client.ackAll(leases);

        assertEquals(List.of(leases.get(3)), List.copyOf(failed.keySet()));
        assertTrue(failed.values().iterator().next() instanceof LeaseLostException);
        assertEquals(0, queue.items(ItemsQuery.of()).count());
    }

    /** One request acknowledges jobs with their results, and leases as many. */
    @Test
    void acknowledgesAndLeasesInOneRequest() {
        for (int i = 0; i < 5; i++) {
            queue.push(Push.of("" + i).keep(Duration.ofHours(1)));
        }
        List<Lease> leases = queue.leaseBatch(3, PopOptions.of());
        List<Acks.Done> done = leases.stream().map(l -> new Acks.Done(l, l.value(), "größe", List.of())).toList();

        List<Received> next = Acks.andLease(done, "Jürgen");

        assertEquals(List.of("3", "4"), next.stream().map(r -> new Lease(queue, r, Duration.ZERO).text()).toList());
        assertEquals("2", queue.result(leases.get(2).id()).text());
        assertEquals("größe", queue.result(leases.get(2).id()).contentType());
        List<Acks.Done> last = next.stream().map(r -> Acks.Done.of(new Lease(queue, r, Duration.ZERO))).toList();
        assertThrows(NotFoundException.class, () -> Acks.andLease(last, ""));
        assertThrows(LeaseLostException.class, () -> Acks.andLease(last, ""));
    }

    /** A successor is pushed with the acknowledgement, names its parent, and its chain can be followed. */
    @Test
    void chainIsFollowedToItsEnd() {
        Queue second = client.priorityQueue(queue.name() + "-2");
        Settings kept = Settings.of().trail(8).keep(Duration.ofHours(1));
        queue.configure(kept.next(second.name()));
        second.configure(kept);
        String id = queue.push("first").id();
        leaseOne().ack(Ack.of().result(bytes("1")).next(second.name(), Push.of("zweite").priority(4).type("größe")));

        Lease follower = second.lease().orElseThrow();
        assertEquals(new JobRef(queue.name(), id), follower.parent().orElseThrow());
        assertEquals("größe", follower.type());
        follower.ack(bytes("2"));

        assertEquals("2", queue.follow(JobName.id(id), TestServer.PATIENCE).text());
        assertEquals(List.of(new JobRef(second.name(), follower.id())), queue.get(id).successors());
        assertEquals("1", queue.result(id).text());
    }

    /** A call returns what its job returned, fails as it failed, and says when the job goes on. */
    @Test
    void callWaitsForItsJob() throws Exception {
        CompletableFuture<JobResult> done = queue.callAsync(Push.of("ping").priority(1));
        leaseOne().ack(bytes("pong"));
        assertEquals("pong", done.get(1, TimeUnit.MINUTES).text());

        CompletableFuture<JobResult> failed = queue.callAsync(Push.of("ping"), TestServer.PATIENCE);
        leaseOne().term("no");
        Throwable cause = assertThrows(Exception.class, () -> failed.get(1, TimeUnit.MINUTES)).getCause();
        assertEquals("no", ((JobFailedException) cause).result().failure());

        Push slow = Push.of("slow");
        NotDoneException goesOn = assertThrows(NotDoneException.class, () -> queue.call(slow, Duration.ZERO));
        assertEquals(State.READY, goesOn.state());
        assertEquals("slow", queue.get(goesOn.id()).text());
    }

    /** A joiner is ready once its members have ended, and knows what became of them. */
    @Test
    void joinerWaitsForItsMembers() {
        List<Pushed> pushed = queue.all(Push.of("joiner").priority(-1), List.of(Push.of("1"), Push.of("2")));
        leaseOne().ack();
        queue.remove(pushed.get(2).id());
        Lease joiner = leaseOne();
        assertEquals(new Joined(1, 0, 1, 0), joiner.joined().orElseThrow());
        joiner.ack();

        try (OpenJoin open = queue.openJoin(Push.of("joiner").msgId("j"), Duration.ofHours(1))) {
            queue.push(Push.of("member").joiner(open.ref()));
            assertEquals(open.ref(), queue.peek().orElseThrow().joiner().orElseThrow());
        }
        leaseOne().ack();
        assertEquals(new Joined(1, 0, 1, 0), leaseOne().joined().orElseThrow());
    }

    /** Items are found, counted, moved, released, removed and purged. */
    @Test
    void itemsAreManaged() {
        List<String> ids = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            ids.add(queue.push(Push.of("grün " + i).priority(i).type("ü")).id());
        }
        Lease lease = leaseOne();

        assertEquals(1, queue.items(ItemsQuery.of().state(State.LEASED)).count());
        ItemsQuery match = ItemsQuery.of().match("grün 2").header("Type", "ü");
        assertEquals(List.of(ids.get(2)), queue.items(match).map(Item::id).toList());
        assertEquals("grün 3", queue.items(ItemsQuery.of().max()).findFirst().orElseThrow().text());
        assertEquals("grü", queue.items(ItemsQuery.of().valueBytes(4)).findFirst().orElseThrow().text());
        assertEquals(new Rank(2, false), queue.rank(ids.get(3))); // the leased one does not count
        assertEquals(new Rank(0, false), queue.rankMax(ids.get(3)));

        String place = queue.move(JobName.id(ids.get(3)), -5);
        assertEquals(new Rank(0, false), queue.rank(ids.get(3)));
        assertEquals(place, queue.get(JobName.place(place)).place());
        assertThrows(NotFoundException.class, () -> queue.move(JobName.place(ids.get(3)), 7));
        assertThrows(LeasedException.class, () -> queue.move(JobName.id(lease.id()), 1));
        List<Edited> edited = queue.moveItems(List.of(JobName.id(ids.get(1)), JobName.id(lease.id())), 9);
        assertNull(edited.get(0).error());
        assertTrue(edited.get(1).error() instanceof LeasedException);

        queue.release(lease.id());
        assertThrows(LeaseLostException.class, lease::ack);
        assertThrows(LeaseLostException.class, () -> queue.release(lease.id()));
        assertTrue(queue.releaseItems(List.of(JobName.id(lease.id()))).get(0).error() instanceof LeaseLostException);
        queue.remove(ids.get(0));
        assertThrows(NotFoundException.class, () -> queue.remove(ids.get(0)));
        assertEquals(2, queue.removeItems(List.of(JobName.id(ids.get(1)), JobName.id(ids.get(2)))).size());
        assertEquals(1, queue.purge(State.READY));
        assertEquals(0, queue.purge());
    }

    /** Settings are changed one by one, and queues and groups are paused. */
    @Test
    void settingsChangeOneByOne() {
        Duration[] pauses = {Duration.ofMillis(1500), Duration.ofMinutes(1)};
        queue.configure(Settings.of().backoff(pauses).maxDeliver(3).maxItems(2));
        Map<String, Object> now = queue.configure(Settings.of().reset("max_deliver").set("max_bytes", 5_000_000_000L));
        assertEquals(List.of("1.5s", "1m0s"), now.get("backoff"));
        assertEquals(5_000_000_000L, now.get("max_bytes"));
        assertFalse(now.containsKey("max_deliver"));
        assertEquals(now, queue.settings());

        queue.push(Push.of("a").group("Müller"));
        queue.push("b");
        assertThrows(OverloadedException.class, () -> queue.push("c"));
        queue.pause("Müller");
        assertEquals("b", queue.pop().orElseThrow().text());
        queue.resume("Müller");
        queue.pause();
        assertTrue(queue.pop().isEmpty());
        queue.resume();
        assertEquals("a", queue.pop().orElseThrow().text());
        assertEquals(0L, queue.info().get("ready"));
    }

    /** Schedules are set, fired, paused, listed and removed. */
    @Test
    void schedulesFire() {
        Schedule nightly = Schedule.of("nightly").cron("0 3 * * *").zone("Europe/Berlin").priority(5);
        assertEquals("0 3 * * *", queue.schedule(nightly.value(bytes("grün")).header("Type", "ü")).get("cron"));
        queue.runSchedule("nightly");
        Item item = queue.pop(PopOptions.of().expires(TestServer.PATIENCE)).orElseThrow();
        assertEquals("grün", item.text());
        assertEquals("ü", item.type());
        assertEquals(5, item.priority());

        queue.pauseSchedule("nightly");
        assertEquals(true, queue.schedules().findFirst().orElseThrow().get("paused"));
        queue.resumeSchedule("nightly");
        queue.schedule(Schedule.of("tick").every(Duration.ofHours(2)).until(Instant.parse("2099-01-01T00:00:00Z")));
        assertEquals(List.of("nightly", "tick"), queue.schedules().map(s -> s.get("id")).toList());
        queue.unschedule("nightly");
        assertThrows(NotFoundException.class, () -> queue.pauseSchedule("nightly"));
    }

    /** FIFO queues keep the order of pushes, have no other end, and are listed on their own. */
    @Test
    void fifoQueuesHaveOneEnd() {
        Queue fifo = client.fifoQueue(queue.name());
        fifo.push("a");
        fifo.push(Push.of("b"));

        assertThrows(BadArgumentException.class, () -> fifo.push(Push.of("c").priority(1)));
        assertThrows(BadArgumentException.class, () -> fifo.pop(PopOptions.of().max()));
        assertThrows(BadArgumentException.class, fifo::peekMax);
        assertTrue(client.fifoQueues().anyMatch(queue.name()::equals));
        assertFalse(client.priorityQueues().anyMatch(queue.name()::equals));
        assertEquals("a", fifo.pop().orElseThrow().text());
        assertEquals("b", fifo.lease().orElseThrow().text());
    }

    /** Expiry, delays and byte limits are kept. */
    @Test
    void delayedItemsStayBack() {
        queue.push(Push.of("later").delay(Duration.ofHours(1)));
        queue.push(Push.of("at").at(Instant.now().plusSeconds(3600)));
        queue.push(Push.of("never").neverExpires());
        queue.push(Push.of("soon").ttl(Duration.ofHours(1)));

        assertEquals(2, queue.len());
        assertEquals(2, queue.items(ItemsQuery.of().state(State.DELAYED)).count());
        assertEquals("never", queue.pop().orElseThrow().headers().get("Nats-TTL"));
        assertThrows(TooLargeException.class, () -> queue.pop(PopOptions.of().maxBytes(1)));
    }

    /** An empty queue is an empty answer, also after a wait. */
    @Test
    void emptyQueueIsNoError() {
        assertTrue(queue.pop(PopOptions.of().expires(Duration.ofMillis(100))).isEmpty());
        assertTrue(queue.leaseBatch(10, PopOptions.of().expires(Duration.ofMillis(100))).isEmpty());
        assertThrows(NotFoundException.class, () -> queue.result(JobName.msgId("none"), Duration.ofMillis(100)));
        assertThrows(NotFoundException.class, () -> queue.get(JobName.msgId("none")));
    }

    /** A worker that stops as its pop opens an inbox leaves none to the next pop that receives nothing. */
    @Test
    void popAfterAnInterruptedOne() throws InterruptedException {
        PqClient fresh = server.client();
        Queue jobs = fresh.priorityQueue(queue.name());
        jobs.push("job");
        PopRequest stopped =
                new PopRequest(jobs, false, TestServer.PATIENCE, PopRequest.leaseOptions(Duration.ZERO, ""), Duration.ZERO);
        stopped.interrupt();
        Thread.currentThread().interrupt();

        assertThrows(PqException.class, stopped::run);

        assertTrue(Thread.interrupted());
        assertEquals("job", jobs.pop().orElseThrow().text());
        fresh.close();
        fresh.connection().close();
    }
}
