package io.github.pqbridge;

import static java.lang.System.Logger.Level.ERROR;
import static java.lang.System.Logger.Level.WARNING;

import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Deque;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;

/** The run of a worker: its slots, and the jobs that it leases, does and settles. */
final class WorkerRun {
    private static final Duration IDLE_WAIT = Duration.ofMinutes(5); // of a request that waits for a job
    private static final Duration GRACE = Duration.ofSeconds(25); // for jobs under way if the worker fails
    private static final Duration IGNORED_TIME = Duration.ofSeconds(2); // for handlers that were interrupted
    private static final Duration SETTLE_TIME = Duration.ofSeconds(5); // after the grace
    private static final Duration DEFAULT_LEASE = Duration.ofSeconds(30); // unless the settings say it
    private static final int MOST_UNDER_WAY = 2; // acknowledgements: while the store syncs one, the next is on its way

    /** Completes when nothing of the run is left. */
    final CompletableFuture<Void> ended = new CompletableFuture<>();

    private final Worker.Builder o;
    private final Handler handler;
    private final ExecutorService background = WorkerThreads.platform("pqbridge-worker");
    private final Seldom seldom = new Seldom();
    private volatile Duration length; // of the latest lease
    private volatile boolean isOverdue; // the time to settle is over
    private volatile boolean isRefused; // the executor had no thread for the last job

    private final Object lock = new Object(); // of all below
    private final Set<Held> held = new HashSet<>(); // one for each slot that is taken
    private final Deque<Held> done = new ArrayDeque<>(); // and not acknowledged yet
    private final List<ScheduledFuture<?>> timers = new ArrayList<>(); // of the stop
    private int sending; // acknowledgements under way
    private boolean isStarted;
    private boolean isStopping;
    private Thread leasing; // the thread that leases, as long as it does
    private PopRequest pop; // waits for a job
    private Throwable failure;

    WorkerRun(Worker.Builder options, Handler handler) {
        this.o = options;
        this.handler = handler;
        this.length = o.ackWait.isZero() ? DEFAULT_LEASE : o.ackWait;
    }

    void start() {
        synchronized (lock) {
            if (isStarted) {
                throw new IllegalStateException("this worker has run before");
            }
            if (!isStopping) {
                after(Wire.TEN_YEARS, () -> {}); // keeps the thread of the timer: later there may be none to have
                Thread thread = new Thread(this::lease, "pqbridge-lease");
                thread.setDaemon(true);
                thread.start();
                leasing = thread;
            }
            isStarted = true;
        }
    }

    // Stopping

    /** Throws if the caller is a handler of this worker. */
    void checkCaller() {
        Thread caller = Thread.currentThread();
        if (allHeld().stream().anyMatch(h -> h.isHandledBy(caller))) {
            throw new IllegalStateException("stop in a handler, which it would wait for: want another thread");
        }
    }

    void beginStop(Duration grace) {
        PopRequest waiting;
        Thread thread;
        synchronized (lock) {
            isStopping = true;
            after(grace, () -> allHeld().forEach(h -> h.end(Job.Ending.STOPPED)));
            after(grace.plus(IGNORED_TIME), this::abandon);
            after(grace.plus(SETTLE_TIME), this::giveUp);
            lock.notifyAll();
            waiting = pop;
            thread = leasing;
        }
        boolean isSent = waiting != null && waiting.interrupt(); // then a job on its way still comes
        if (thread != null && !isSent) {
            thread.interrupt();
        }
        checkEnded();
    }

    private void after(Duration time, Runnable task) {
        timers.add(Threads.TIMER.schedule(task, time.toNanos(), TimeUnit.NANOSECONDS));
    }

    private void abandon() {
        for (Held h : allHeld()) {
            if (h.abandon()) {
                log(WARNING, named(h) + " has not ended although the worker has stopped", null);
                inBackground(() -> sendBack(h, Outcome.of(Job.Ending.STOPPED)));
            }
        }
    }

    /** Ends all attempts to settle jobs. */
    private void giveUp() {
        isOverdue = true;
        allHeld().forEach(Held::giveUp);
        background.shutdownNow();
        share();
    }

    private void inBackground(Runnable task) {
        try {
            background.execute(task);
        } catch (RejectedExecutionException | OutOfMemoryError noThread) {
            task.run(); // which makes no request any more, if the time to settle is over
        }
    }

    private List<Held> allHeld() {
        synchronized (lock) {
            return List.copyOf(held);
        }
    }

    /** Ends the worker: trying again cannot help. */
    private void fail(Throwable error) {
        synchronized (lock) {
            failure = failure == null ? error : failure;
        }
        beginStop(GRACE);
        log(ERROR, "the worker ends", error);
    }

    private void checkEnded() {
        synchronized (lock) {
            if (!isStopping || leasing != null || !held.isEmpty()) {
                return;
            }
            timers.forEach(timer -> timer.cancel(false));
        }
        background.shutdown();
        if (failure == null) {
            ended.complete(null);
        } else {
            ended.completeExceptionally(failure);
        }
    }

    // Leasing

    /** Leases a job whenever a slot is free, until the worker stops. */
    private void lease() {
        Pause pause = new Pause();
        Pause refusals = new Pause();
        try {
            while (awaitSlot()) {
                try {
                    if (isRefused) {
                        isRefused = false;
                        o.queue.link.pause(refusals.nanos(), false);
                    } else {
                        refusals.reset();
                    }
                    List<Held> leased = hold(receive(), o.ackWait);
                    leased.forEach(this::begin);
                    if (leased.isEmpty()) {
                        o.queue.link.pause(pause.nanos(), false);
                    } else {
                        pause.reset();
                    }
                } catch (NotFoundException e) {
                    pause.reset();
                } catch (RuntimeException | Error e) {
                    if (e instanceof PqException failed && isHopeless(failed)) {
                        fail(e);
                        return;
                    }
                    goOn("cannot lease a job, trying again", e, pause);
                }
            }
        } catch (InterruptedException end) {
            // only the end of the worker interrupts
        } catch (RuntimeException | Error e) {
            fail(e);
        } finally {
            synchronized (lock) {
                leasing = null;
            }
            checkEnded();
        }
    }

    private List<Received> receive() {
        try {
            return pop.run();
        } finally {
            synchronized (lock) {
                pop = null;
            }
        }
    }

    /** Waits for a free slot, and makes the request for its job. Returns false if the worker stops. */
    private boolean awaitSlot() throws InterruptedException {
        synchronized (lock) {
            while (!isStopping && held.size() >= o.concurrency) {
                lock.wait();
            }
            if (!isStopping) {
                pop = new PopRequest(
                        o.queue, o.max, IDLE_WAIT, PopRequest.leaseOptions(o.ackWait, o.holder), length);
            }
            return !isStopping;
        }
    }

    /** Takes slots for jobs, and renews their leases from now on, but for jobs that cannot begin. */
    private List<Held> hold(List<Received> received, Duration ackWait) {
        List<Held> all = new ArrayList<>(received.size());
        for (Received r : received) {
            try {
                Lease lease = new Lease(o.queue, r, ackWait);
                lease.confirm();
                length = lease.ackWait();
                all.add(new Held(lease, this::lost, e -> warnSeldom("cannot renew a lease, trying again", e)));
            } catch (RuntimeException | Error e) {
                warnSeldom("a job cannot be read, or its lease was over before it could begin", e);
            }
        }
        synchronized (lock) {
            held.addAll(all);
        }
        return all;
    }

    private void lost(Held h, PqException error) {
        log(WARNING, "lost the lease of " + named(h) + ", which is being done", error);
        h.end(Job.Ending.LOST);
    }

    // Doing

    /** Has the executor do a job, in a thread of its own if it may do it in the one that asks. */
    private void begin(Held h) {
        Executor first = o.executor == WorkerThreads.HANDLERS ? Runnable::run : background;
        if (isStopping()) {
            giveBack(h);
        } else {
            execute(h, first, () -> execute(h, o.executor, () -> work(h)));
        }
    }

    /** Runs a step towards the handler. If it is refused, the job goes back, and leasing pauses. */
    private void execute(Held h, Executor executor, Runnable step) {
        try {
            executor.execute(step);
        } catch (RuntimeException | Error refusal) {
            if (giveBack(h)) {
                warnSeldom("no thread for a job, which goes back", refusal);
            }
        }
    }

    /** Sends a job back unless its handler has begun, and reports whether it does. */
    private boolean giveBack(Held h) {
        boolean refused = h.refuse();
        if (refused) {
            isRefused = true;
            inBackground(() -> sendBack(h, Outcome.of(Job.Ending.STOPPED)));
        }
        return refused;
    }

    private void work(Held h) {
        Throwable thrown = null;
        boolean begins = false;
        try {
            if (isStopping()) { // while the executor had no thread for it
                h.end(Job.Ending.STOPPED);
            }
            begins = h.beginHandler(o.jobTimeout == null
                    ? null
                    : Threads.TIMER.schedule(() -> timeOut(h), o.jobTimeout.toNanos(), TimeUnit.NANOSECONDS));
            if (begins) {
                handler.handle(h.job);
            }
        } catch (Throwable t) {
            thrown = t;
        }
        if (!h.endHandler()) {
            return; // the worker has given the job back
        }
        try {
            settle(h, begins, thrown);
        } catch (RuntimeException | Error broken) { // such as an exception that throws
            drop(h, broken);
        }
    }

    /** Frees the slot of a job that cannot be settled. It comes back when its lease is over. */
    private void drop(Held h, Throwable why) {
        h.letGo();
        free(h, null);
        logUnsettled(h, why);
    }

    private void settle(Held h, boolean begins, Throwable thrown) {
        if (thrown != null) {
            Outcome outcome = Outcome.of(thrown, h.job);
            h.settling(() -> sendBack(h, outcome));
        } else if (!begins) {
            h.settling(() -> sendBack(h, Outcome.of(h.job.ending().orElseThrow())));
        } else {
            synchronized (lock) {
                done.add(h);
            }
            share();
        }
    }

    private void timeOut(Held h) {
        log(WARNING, named(h) + " takes longer than " + o.jobTimeout, null);
        h.end(Job.Ending.TIMEOUT);
        h.letGo(); // a handler that hangs must not keep it
    }

    // Settling

    /** Has the jobs that are done acknowledged, unless enough acknowledgements are under way. */
    private void share() {
        synchronized (lock) {
            if (done.isEmpty() || sending >= MOST_UNDER_WAY) {
                return;
            }
            sending++;
        }
        inBackground(this::acknowledgeAll);
    }

    private void acknowledgeAll() {
        for (List<Held> batch = nextBatch(); !batch.isEmpty(); batch = nextBatch()) {
            try {
                acknowledge(batch);
            } catch (RuntimeException | Error broken) {
                batch.forEach(h -> drop(h, broken));
            }
            Thread.yield(); // the jobs that it has begun may be short: let them share the next one
        }
    }

    /** Returns the jobs of the next acknowledgement. Without any, this one is no longer under way. */
    private List<Held> nextBatch() {
        synchronized (lock) {
            List<Held> batch = new ArrayList<>();
            if (done.isEmpty()) {
                sending--;
                return batch;
            }
            Iterable<Acks.Done> dones = () -> done.stream().map(Held::done).iterator();
            for (int n = Acks.fitting(dones, o.queue.link.maxPayload()); n > 0; n--) {
                batch.add(done.remove());
            }
            return batch;
        }
    }

    /** Acknowledges jobs in one request, which leases as many unless the worker stops. */
    private void acknowledge(List<Held> all) {
        List<Held> batch = new ArrayList<>(all.size());
        for (Held h : all) { // as late as possible, because jobs may have waited
            if (h.letGo()) {
                free(h, null);
            } else if (isOverdue) {
                logUnsettled(h, null);
                free(h, null);
            } else {
                batch.add(h);
            }
        }
        if (batch.isEmpty()) {
            return;
        }

        List<Acks.Done> dones = batch.stream().map(Held::done).toList();
        List<PqException> errors = new ArrayList<>(Collections.nCopies(batch.size(), null));
        List<Held> following = List.of();
        boolean stops = isStopping();
        try {
            if (stops) {
                errors = Acks.together(dones);
            } else {
                following = hold(Acks.andLease(dones, o.holder), batch.get(0).lease.ackWait());
            }
        } catch (NotFoundException e) {
            // the acknowledgements count
        } catch (PqException e) {
            if (!(e instanceof TooLargeException) || e.reason().isEmpty()) { // otherwise it is about the next job
                Collections.fill(errors, e);
                if (!(e instanceof LeaseLostException)) {
                    warnSeldom("cannot acknowledge a job, trying again", e);
                }
            }
        }

        Iterator<Held> next = following.iterator();
        for (int i = 0; i < batch.size(); i++) {
            Held h = batch.get(i);
            PqException e = errors.get(i);
            if (e == null) {
                free(h, next.hasNext() ? next.next() : null);
            } else if (stops && e.code() == 500) {
                drop(h, e);
            } else {
                alone(h, e.unknown() || e.code() == 500 || e.code() == 503);
            }
        }
    }

    private boolean isStopping() {
        synchronized (lock) {
            return isStopping;
        }
    }

    /** Acknowledges a job in a request of its own, in a thread that may wait. */
    private void alone(Held h, boolean unknown) {
        Runnable acknowledge = () -> h.settling(() -> {
            try {
                settle(h, () -> h.lease.ack(h.job.ack), unknown);
                free(h, null);
            } catch (BadRequestException | TooLargeException e) {
                // Otherwise it would be done again and again, and nobody would know why.
                String text = "the result, or what follows, was refused: " + e.getMessage();
                sendBack(h, new Outcome(Outcome.Kind.FAILED, text, null, e));
            } catch (RuntimeException | Error broken) {
                drop(h, broken);
            }
        });
        try {
            WorkerThreads.HANDLERS.execute(acknowledge);
        } catch (RejectedExecutionException | OutOfMemoryError noThread) {
            acknowledge.run();
        }
    }

    /** Settles a job that is not done. */
    private void sendBack(Held h, Outcome outcome) {
        try {
            settle(h, outcome);
            free(h, null);
        } catch (RuntimeException | Error broken) { // such as a request that is refused
            drop(h, broken);
        }
    }

    private void settle(Held h, Outcome outcome) {
        boolean isLost = h.letGo() || outcome.kind() == Outcome.Kind.LOST;
        String text = outcome.text();
        if (outcome.kind() == Outcome.Kind.FAILED || outcome.kind() == Outcome.Kind.DROPPED) {
            log(WARNING, named(h) + " failed at delivery " + h.job.deliveries() + ": " + text, outcome.error());
        }
        if (!isLost) {
            settle(h, () -> {
                switch (outcome.kind()) {
                    case SNOOZED -> h.lease.snooze(outcome.delay());
                    case STOPPED -> h.lease.snooze(Duration.ZERO);
                    case DROPPED -> h.lease.term(text);
                    default -> {
                        if (outcome.delay() == null) {
                            h.lease.nakRetry(o.retryDelay, text);
                        } else {
                            h.lease.nakAfter(outcome.delay(), text);
                        }
                    }
                }
            }, false);
        }
    }

    /** Sends what ends a lease until there is an answer, and throws what would be the same every time. */
    private void settle(Held h, Runnable send, boolean unknown) {
        if (isOverdue) {
            logUnsettled(h, null);
            return;
        }
        Pause pause = new Pause();
        try {
            Acks.repeat(send, e -> {
                if (!isOverdue && e.passing() && e.code() != 500 && goOn("cannot settle a job, trying again", e, pause)) {
                    return true;
                }
                if (e instanceof DeniedException) {
                    fail(e);
                }
                logUnsettled(h, e);
                return false;
            }, unknown);
        } catch (LeaseLostException e) {
            log(WARNING, named(h) + " was settled too late", e);
        }
    }

    private void logUnsettled(Held h, Throwable why) {
        log(ERROR, "cannot settle " + named(h) + ", which comes back", why);
    }

    /** Waits before another attempt, and reports whether there should be one. */
    private boolean goOn(String what, Throwable e, Pause pause) {
        if (e instanceof CallInterruptedException) {
            return false; // only the end of the worker interrupts
        }
        warnSeldom(what, e);
        try {
            o.queue.link.pause(pause.nanos(), false);
            return true;
        } catch (CallInterruptedException end) {
            return false;
        }
    }

    /** Frees the slot of a job, or gives it to the following one. */
    private void free(Held h, Held following) {
        synchronized (lock) {
            held.remove(h);
            if (following == null) {
                lock.notifyAll();
            }
        }
        if (following != null) {
            begin(following);
        } else {
            checkEnded();
        }
    }

    private boolean isHopeless(PqException e) {
        boolean closed = e instanceof NotSentException && o.queue.link.isClosed();
        boolean refused = e instanceof BadRequestException || e instanceof BadArgumentException;
        return closed || refused || e instanceof DeniedException;
    }

    private void warnSeldom(String what, Throwable e) {
        log(seldom.level(what, WARNING), what, e);
    }

    private void log(Level level, String what, Throwable error) {
        try {
            o.logger.log(level, o.queue + ": " + what, error);
        } catch (RuntimeException | Error broken) {
            // jobs go on without a log
        }
    }

    private static String named(Held h) {
        return "job " + h.job.id() + (h.job.type().isEmpty() ? "" : " of type " + Wire.shown(h.job.type()));
    }
}
