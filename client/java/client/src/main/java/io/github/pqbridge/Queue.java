package io.github.pqbridge;

import io.nats.client.Message;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;

/**
 * A queue, as {@link PqClient#priorityQueue} and {@link PqClient#fifoQueue} return it. It has no state
 * of its own, and is safe for use by many threads.
 *
 * <p>Besides the exceptions that they name, all methods throw those of any request:
 * {@link BadArgumentException} for what cannot be sent, {@link BadRequestException},
 * {@link OverloadedException}, {@link InternalException}, {@link UnavailableException},
 * {@link NoBridgeException}, {@link BadReplyException}, {@link NotSentException},
 * {@link DeniedException}, {@link CallInterruptedException}, and {@link UnknownOutcomeException} if they
 * can change something. An empty queue is an empty {@link Optional} or list.
 */
public final class Queue {
    private static final Duration DAY = Duration.ofDays(1);
    private static final int MAX_BATCH = 1000;
    private static final int MAX_REDRIVE = 1_000_000;

    final PqClient client;
    final Link link;
    private final String prefix;
    private final String name;
    private final boolean fifo;

    Queue(PqClient client, String prefix, String name, boolean fifo) {
        this.client = client;
        this.link = client.link;
        this.prefix = prefix;
        this.name = Wire.checkQueue(name);
        this.fifo = fifo;
    }

    /**
     * Returns the name of the queue.
     *
     * @return the name
     */
    public String name() { return name; }

    /**
     * Reports whether this is a FIFO queue, which has no priorities and only one end.
     *
     * @return whether it is
     */
    public boolean isFifo() { return fifo; }

    /**
     * Returns the client of the queue.
     *
     * @return the client
     */
    public PqClient client() { return client; }

    /** Returns the subject of a verb. */
    String subject(String verb) { return prefix + "." + name + "." + verb; }

    /** Returns another queue of the same kind. */
    Queue beside(String other) { return new Queue(client, prefix, other, fifo); }

    @Override
    public String toString() { return (fifo ? "FIFO queue " : "priority queue ") + name; }

    // Pushing

    /**
     * Adds an item, and returns once it is durable. The push is repeated, with the same message id, until
     * the timeout of the client is over: it happens once.
     *
     * @param push the item
     * @return what names it
     * @throws TooLargeException if the item exceeds a limit
     * @throws OverloadedException if the queue is full
     * @throws UnknownOutcomeException once the outcome of one attempt is unknown and none succeeds
     */
    public Pushed push(Push push) { return Pushes.one(this, push); }

    /**
     * Adds bytes: see {@link #push(Push)}.
     *
     * @param value the bytes
     * @return what names the item
     */
    public Pushed push(byte[] value) { return push(Push.of(value)); }

    /**
     * Adds text in UTF-8: see {@link #push(Push)}.
     *
     * @param value the text
     * @return what names the item
     */
    public Pushed push(String value) { return push(Push.of(value)); }

    /**
     * Adds an item, as {@link #push(Push)} does, without waiting. Up to 64 are under way at a time, and
     * they may come in any order. A cancelled future may push or not.
     *
     * @param push the item
     * @return what names it, or the exception
     */
    public CompletableFuture<Pushed> pushAsync(Push push) {
        Push own = Wire.required("push", push).copy(); // the caller may change it
        return Threads.async(Threads.SHORT, () -> push(own));
    }

    /**
     * Adds items in one transaction: all, or after an exception none. It is repeated as
     * {@link #push(Push)} is, unless some items have message ids and others have none.
     *
     * @param items 1 to 4,096 items; 1,000 small ones certainly fit into one request
     * @return what names them, in their order
     * @throws TooLargeException if they do not fit into one request: push two halves
     */
    public List<Pushed> pushBatch(List<Push> items) { return Pushes.batch(this, items); }

    /**
     * Adds items as {@link #pushBatch} does, without waiting.
     *
     * @param items the items
     * @return what names them, or the exception
     */
    public CompletableFuture<List<Pushed>> pushBatchAsync(List<Push> items) {
        List<Push> all = Wire.required("items", items).stream().map(p -> Wire.required("an item", p).copy()).toList();
        return Threads.async(Threads.SHORT, () -> pushBatch(all));
    }

    /**
     * Adds any number of items in as few requests as possible. Items of one priority are served in this
     * order. Each request is repeated as {@link #push(Push)} is. Nothing is sent after a failure, be it of
     * one item that is too large: first come the items in the queue, then the failed ones, then
     * {@link NotSentException} for the rest.
     *
     * @param items the items
     * @return what became of each, in their order
     */
    public List<PushOutcome> pushMany(Iterable<Push> items) { return Pushes.many(this, items); }

    /**
     * Adds a joiner and its members in one transaction: the joiner is ready once all of them have ended.
     * It waits for a day at most, unless it has a {@link Push#join}. A member may be a joiner itself, and
     * name one of the items before it as its joiner by their number, where the first is 0. Members in
     * other queues, more than 4,095, or some that only turn up later are pushed with
     * {@link Push#joiner(JobRef)}: by a job that is a member itself, or after {@link #openJoin}.
     *
     * @param joiner the joiner
     * @param members its members
     * @return what names the joiner and each member, in this order
     */
    public List<Pushed> all(Push joiner, List<Push> members) {
        Wire.required("joiner", joiner);
        List<Push> items = new ArrayList<>(List.of(joiner.has("Pq-Join") ? joiner : joiner.copy().join(DAY)));
        for (Push member : Wire.required("members", members)) {
            items.add(Wire.required("a member", member).isMember() ? member : member.copy().joiner(0));
        }
        return Pushes.batch(this, items);
    }

    /**
     * Adds a joiner that waits until {@link OpenJoin#close}, and then until its members have ended. If
     * close is not called within a time, because this process dies, it waits for its members alone.
     *
     * @param joiner the joiner: see {@link #all}
     * @param open that time, 1 s to ten years
     * @return the joiner
     */
    public OpenJoin openJoin(Push joiner, Duration open) {
        List<Pushed> pushed = all(joiner, List.of(joiner.guard(open)));
        return new OpenJoin(this, pushed.get(0).id(), pushed.get(1).id());
    }

    /**
     * Pushes a job, waits until a worker has done it, however long that takes, and returns what its handler
     * returned. The result is kept for an hour, or as long as {@link Push#keep} says. To outlast a crash
     * of the caller, give a message id, and call again with it within the duplicate window.
     *
     * @param push the job
     * @return the result, which is done
     * @throws JobFailedException if the job became a dead letter
     * @throws NotFoundException if it was removed, popped or has expired
     * @throws NotDoneException if nobody can be asked any more, and the job goes on
     */
    public JobResult call(Push push) { return Results.call(this, push, null); }

    /**
     * Pushes a job and waits as {@link #call(Push)} does, but not longer than a time.
     *
     * @param push the job
     * @param wait for how long to wait once the job is pushed
     * @return the result, which is done
     * @throws NotDoneException if the time is over; it has the id of the job, which goes on
     */
    public JobResult call(Push push, Duration wait) { return Results.call(this, push, Wire.required("wait", wait)); }

    /**
     * Calls as {@link #call(Push)} does, in another thread.
     *
     * @param push the job
     * @return the result, or the exception
     */
    public CompletableFuture<JobResult> callAsync(Push push) {
        Push own = Wire.required("push", push).copy();
        return Threads.async(Threads.LONG, () -> call(own));
    }

    /**
     * Calls as {@link #call(Push, Duration)} does, in another thread.
     *
     * @param push the job
     * @param wait for how long to wait
     * @return the result, or the exception
     */
    public CompletableFuture<JobResult> callAsync(Push push, Duration wait) {
        Push own = Wire.required("push", push).copy();
        return Threads.async(Threads.LONG, () -> call(own, wait));
    }

    /**
     * Returns what became of a job.
     *
     * @param id the id of the job
     * @return its state, and what it returned
     * @throws NotFoundException if there is no such job, or it is over and not kept
     */
    public JobResult result(String id) { return result(JobName.id(id), Duration.ZERO); }

    /**
     * Returns what became of a job. It waits until the job is done or dead, but no longer than a time;
     * then it returns the state that the job has. It asks again after restarts of bridges and servers.
     *
     * @param job the job, by its id or message id
     * @param wait how long to wait
     * @return its state, and what it returned
     * @throws NotFoundException if there is no such job, or it is over and not kept
     */
    public JobResult result(JobName job, Duration wait) { return Results.of(this, job, wait, false); }

    /**
     * Returns what {@link #result(JobName, Duration)} does, in another thread.
     *
     * @param job the job, by its id or message id
     * @param wait how long to wait
     * @return what became of it, or the exception
     */
    public CompletableFuture<JobResult> resultAsync(JobName job, Duration wait) {
        return Threads.async(Threads.LONG, () -> result(job, wait));
    }

    /**
     * Returns what became of the last job of a chain: it goes on from a job that is done to the one that
     * it has pushed, up to one that has pushed nothing or is not done. Each queue of the chain needs the
     * settings keep and trail: without trail, nobody knows what a job has pushed, and the chain ends.
     *
     * @param job the first job, by its id or message id
     * @param wait how long to wait
     * @return what became of the last one
     * @throws ChainException if a job to follow has pushed several, or there are more than 64
     * @throws NotFoundException if a job of the chain is not kept, or gone
     */
    public JobResult follow(JobName job, Duration wait) { return Results.of(this, job, wait, true); }

    // Popping

    /**
     * Removes and returns the first item: the smallest priority, the oldest among equals. The item has
     * left the queue: if this process dies, it is lost. Leases lose nothing.
     *
     * @return the item, empty if there is none
     */
    public Optional<Item> pop() { return pop(PopOptions.of()); }

    /**
     * Removes and returns the first item: see {@link #pop()}.
     *
     * @param options what to take, and how long to wait
     * @return the item, empty if there is none
     */
    public Optional<Item> pop(PopOptions options) { return PopRequest.pop(this, options, 1).stream().findFirst(); }

    /**
     * Removes and returns items in one transaction. With {@link PopOptions#expires} it returns once it
     * has as many, or the time is over.
     *
     * @param n how many at most, 1 to 1,000
     * @param options what to take, and how long to wait
     * @return the items
     */
    public List<Item> popBatch(int n, PopOptions options) { return PopRequest.pop(this, options, checkBatch(n)); }

    /**
     * Returns the item that {@link #pop()} would remove, and leaves it in the queue.
     *
     * @return the item, empty if there is none
     */
    public Optional<Item> peek() { return PopRequest.peek(this, fifo ? "peek" : "peek.min"); }

    /**
     * Returns the item that a pop of the largest priority would remove. Not in a FIFO queue.
     *
     * @return the item, empty if there is none
     */
    public Optional<Item> peekMax() {
        checkEnd(true);
        return PopRequest.peek(this, "peek.max");
    }

    /**
     * Leases the item that {@link #pop()} would remove: nobody else gets it until the lease is over. An
     * item that comes to an interrupted call is given back, and the delivery does not count.
     *
     * @return the lease, empty if there is no item
     */
    public Optional<Lease> lease() { return lease(PopOptions.of()); }

    /**
     * Leases an item: see {@link #lease()}.
     *
     * @param options what to take, for how long, and how long to wait
     * @return the lease, empty if there is no item
     */
    public Optional<Lease> lease(PopOptions options) { return PopRequest.lease(this, options, 1).stream().findFirst(); }

    /**
     * Leases items in one transaction. With {@link PopOptions#expires} it returns once it has as many,
     * or the time is over. Acknowledge each, or all with {@link PqClient#ackAll}.
     *
     * @param n how many at most, 1 to 1,000
     * @param options what to take, for how long, and how long to wait
     * @return the leases
     */
    public List<Lease> leaseBatch(int n, PopOptions options) { return PopRequest.lease(this, options, checkBatch(n)); }

    private static int checkBatch(int n) {
        if (n < 1 || n > MAX_BATCH) {
            throw new BadArgumentException("a batch of " + n + ": want 1 to " + MAX_BATCH + " items");
        }
        return n;
    }

    void checkEnd(boolean max) {
        if (max && fifo) {
            throw new BadArgumentException("max in a FIFO queue, which is served from one end");
        }
    }

    // Looking

    /**
     * Returns the number of ready items, without leased and delayed ones.
     *
     * @return the number
     */
    public long len() { return read("len", null, "len").number("len"); }

    /**
     * Returns the counts, settings and more of the queue.
     *
     * @return the members of the protocol; integers are Long
     */
    public Map<String, Object> info() { return read("info", null, "queue").toMap(); }

    /**
     * Returns all settings that are set.
     *
     * @return the names and values of the protocol; integers are Long
     */
    public Map<String, Object> settings() { return read("config", null, "").toMap(); }

    /**
     * Lists items, in the order in which they would be served if all were ready, page by page. They stay
     * where they are, and pages are not of one moment.
     *
     * @param query which items
     * @return the items
     */
    public Stream<StoredItem> items(ItemsQuery query) {
        checkEnd(Wire.required("query", query).members.containsKey("end"));
        return pages("items", "items", query.members).map(StoredItem::of);
    }

    /**
     * Returns an item in any state, also a dead letter or a job that is done and kept.
     *
     * @param job its id, message id or place
     * @return the item, with its attempts and successors
     * @throws NotFoundException if there is none
     */
    public FoundItem get(JobName job) {
        Map<String, Object> body = Json.of(Wire.required("job", job).kind(), job.name(), "frames", true);
        Received r = Received.in(link.read(subject("get"), body, client.timeout));
        return FoundItem.of(r.value(), r.headers());
    }

    /**
     * Returns an item: see {@link #get(JobName)}.
     *
     * @param id the id of the job
     * @return the item, with its attempts and successors
     */
    public FoundItem get(String id) { return get(JobName.id(id)); }

    /**
     * Returns how many items {@link #pop()} would return before this one. A leased or delayed item counts
     * as if it came back now.
     *
     * @param id the id of the job
     * @return the number, which is exact up to 10,000 items of the same priority
     * @throws NotFoundException if there is no such item
     */
    public Rank rank(String id) { return rank(Json.of("id", JobName.id(id).name())); }

    /**
     * Returns how many items a pop of the largest priority would return before this one. Not in a FIFO
     * queue.
     *
     * @param id the id of the job
     * @return the number: see {@link #rank}
     */
    public Rank rankMax(String id) {
        checkEnd(true);
        return rank(Json.of("id", JobName.id(id).name(), "end", "max"));
    }

    private Rank rank(Map<String, Object> body) {
        Json reply = read("rank", body, "rank");
        return new Rank(reply.number("rank"), reply.flag("at_least"));
    }

    // Managing

    /**
     * Removes an item in any state. Its holder, if it is leased, gets {@link LeaseLostException}.
     *
     * @param id the id of the job
     * @throws NotFoundException if there is no such item
     */
    public void remove(String id) { manage("remove", Json.of("id", JobName.id(id).name()), "id"); }

    /**
     * Moves an item to the end of a priority. After {@link UnknownOutcomeException}, repeat it with the
     * place that the item had before: one that has left it is not found, so nothing that has happened to
     * the job since is undone.
     *
     * @param job its id or place
     * @param priority the priority
     * @return where the item is now
     * @throws NotFoundException if there is no such item
     * @throws LeasedException if it is leased
     * @throws JoinsException if it is a joiner that waits
     */
    public String move(JobName job, long priority) {
        Map<String, Object> body = Json.of(Wire.required("job", job).kind(), job.name(), "priority", priority);
        return manage("move", body, "place").text("place");
    }

    /**
     * Ends the lease of an item whose holder is known to be dead. The delivery does not count.
     *
     * @param id the id of the job
     * @throws LeaseLostException if it is not leased
     * @throws NotFoundException if there is no such item
     */
    public void release(String id) { manage("release", Json.of("id", JobName.id(id).name()), "id"); }

    /**
     * Removes all items but jobs that are done and kept.
     *
     * @return how many there were
     * @throws JoinsException while too many joins have members here for one transaction
     */
    public long purge() { return repeatPart("purge", Json.of(), "purged", Long.MAX_VALUE); }

    /**
     * Removes all items in one state. One that changes its state meanwhile may stay, and after an exception
     * some may be gone.
     *
     * @param state ready, delayed, leased or done
     * @return how many there were
     */
    public long purge(State state) {
        return repeatPart("purge", Json.of("state", Wire.required("state", state).word()), "purged", Long.MAX_VALUE);
    }

    /**
     * Sends ready dead letters of this queue back to where they came from. They keep their ids, and are at
     * the end of their priority.
     *
     * @param max how many at most, 1 to 1,000,000
     * @return how many went back
     */
    public long redrive(int max) {
        if (max < 1 || max > MAX_REDRIVE) {
            throw new BadArgumentException("max " + max + ": want 1 to " + MAX_REDRIVE);
        }
        return repeatPart("redrive", Json.of("max", (long) max), "redriven", max);
    }

    /** Repeats a request that does a part of its work, and returns how many items it has changed. */
    private long repeatPart(String verb, Map<String, Object> body, String member, long max) {
        long done = 0;
        while (true) {
            if (body.containsKey("max")) {
                body.put("max", max - done);
            }
            Json reply = manage(verb, body, member);
            done += reply.number(member);
            if (!reply.flag("more") || done >= max) {
                return done;
            }
        }
    }

    /**
     * Removes items in one transaction. One that cannot be removed does not keep the others; this holds
     * for all methods with several items.
     *
     * @param jobs 1 to 1,000, all named by their ids or all by their places
     * @return what became of each, in their order
     */
    public List<Edited> removeItems(List<JobName> jobs) { return edit("remove", jobs, Json.of()); }

    /**
     * Moves items to the end of a priority, in this order and in one transaction.
     *
     * @param jobs 1 to 1,000, all named by their ids or all by their places
     * @param priority the priority
     * @return what became of each
     */
    public List<Edited> moveItems(List<JobName> jobs, long priority) {
        return edit("move", jobs, Json.of("priority", priority));
    }

    /**
     * Ends the leases of items in one transaction.
     *
     * @param jobs 1 to 1,000, all named by their ids or all by their places
     * @return what became of each
     */
    public List<Edited> releaseItems(List<JobName> jobs) { return edit("release", jobs, Json.of()); }

    /**
     * Sends dead letters back in one transaction. After {@link UnknownOutcomeException}, repeat it with
     * their places, as a move.
     *
     * @param jobs 1 to 1,000, all named by their ids or all by their places
     * @return what became of each
     */
    public List<Edited> redriveItems(List<JobName> jobs) { return edit("redrive", jobs, Json.of()); }

    private List<Edited> edit(String verb, List<JobName> jobs, Map<String, Object> more) {
        List<String> kinds = Wire.required("jobs", jobs).stream()
                .map(job -> Wire.required("a job", job).kind()).distinct().toList();
        if (kinds.size() != 1 || kinds.contains("msg_id") || jobs.size() > MAX_BATCH) {
            throw new BadArgumentException(jobs.size() + " items named by " + kinds
                    + ": want 1 to " + MAX_BATCH + ", all named by their ids or all by their places");
        }
        Map<String, Object> body = Json.of(kinds.get(0) + "s", jobs.stream().map(JobName::name).toList());
        body.putAll(more);
        return manage(verb, body, "results").objects("results").stream().map(Queue::edited).toList();
    }

    private static Edited edited(Json r) {
        PqException error = r.has("code")
                ? PqException.of((int) r.number("code"), r.text("error_reason"), r.text("error"), false)
                : null;
        return new Edited(r.text("id"), r.text("place"), r.text("home"), error);
    }

    /**
     * Changes settings: only the ones that are given.
     *
     * @param settings the settings
     * @return all settings that are set now: see {@link #settings}
     */
    public Map<String, Object> configure(Settings settings) {
        return manage("config", Wire.required("settings", settings).members, "").toMap();
    }

    /** Serves no items until {@link #resume()}. */
    public void pause() { configure(Settings.of().set("pause_until", Instant.parse("9999-12-31T00:00:00Z"))); }

    /** Ends a pause of the queue. */
    public void resume() { configure(Settings.of().reset("pause_until")); }

    /**
     * Serves no items of a group until {@link #resume(String)}.
     *
     * @param group the group
     */
    public void pause(String group) {
        configure(Settings.of().set("paused_groups", Map.of(Wire.checkText("group", group), true)));
    }

    /**
     * Ends a pause of a group.
     *
     * @param group the group
     */
    public void resume(String group) {
        configure(Settings.of().set("paused_groups", Map.of(Wire.checkText("group", group), false)));
    }

    // Schedules

    /**
     * Creates a schedule, or replaces the one with its id and keeps its counts.
     *
     * @param schedule the schedule
     * @return the schedule with its state, as the protocol has them
     */
    public Map<String, Object> schedule(Schedule schedule) {
        return manage("schedule", Wire.required("schedule", schedule).members, "id").toMap();
    }

    /**
     * Pauses a schedule.
     *
     * @param id the id
     * @throws NotFoundException if there is none
     */
    public void pauseSchedule(String id) { schedule(Schedule.of(id).set("paused", true)); }

    /**
     * Resumes a schedule, with its next time from now.
     *
     * @param id the id
     * @throws NotFoundException if there is none
     */
    public void resumeSchedule(String id) { schedule(Schedule.of(id).set("paused", false)); }

    /**
     * Fires a schedule now, in addition to its times.
     *
     * @param id the id
     * @throws NotFoundException if there is none
     */
    public void runSchedule(String id) { schedule(Schedule.of(id).set("run", true)); }

    /**
     * Removes a schedule. What it has pushed stays.
     *
     * @param id the id
     * @throws NotFoundException if there is none
     */
    public void unschedule(String id) { manage("unschedule", Json.of("id", Wire.checkText("id", id)), "id"); }

    /**
     * Lists the schedules of the queue, page by page.
     *
     * @return each with its state, as the protocol has them, sorted by id
     */
    public Stream<Map<String, Object>> schedules() {
        return pages("schedules", "schedules", Map.of()).map(Json::toMap);
    }

    // Requests

    private Stream<Json> pages(String verb, String member, Map<String, Object> query) {
        return Pages.of(q -> link.read(subject(verb), q, client.timeout), member, query);
    }

    private Json read(String verb, Map<String, Object> body, String member) {
        return Json.read(link.read(subject(verb), body, client.timeout).getData(), member);
    }

    private Json manage(String verb, Map<String, Object> body, String member) {
        List<Header> agent = List.of(new Header("User-Agent", client.agent()));
        Message reply = link.request(subject(verb), Json.write(body), agent, client.timeout, true, false);
        return Json.read(reply.getData(), member);
    }
}
