package io.github.pqbridge;

import java.time.Duration;
import java.util.List;
import java.util.Map;

/** Waits for what becomes of jobs. */
final class Results {
    private static final Duration HOUR = Duration.ofHours(1);
    private static final Duration SLICE = Duration.ofSeconds(30); // of one request
    private static final Duration LATEST = Duration.ofSeconds(1); // after a wait is over, for the last reply

    private Results() {}

    /** Wait is null for as long as it takes. */
    static JobResult call(Queue q, Push push, Duration wait) {
        Wire.required("push", push);
        if (wait != null) {
            Wire.checkDuration("wait", wait, Duration.ZERO, Wire.TEN_YEARS);
        }
        Pushed pushed = q.push(push.has("Pq-Keep") ? push : push.copy().keep(HOUR));
        JobResult result;
        try {
            result = await(q, JobName.id(pushed.id()), wait == null ? Wire.TEN_YEARS : wait);
        } catch (NotFoundException e) {
            throw e;
        } catch (PqException e) {
            String text = "job " + pushed.id() + " is pushed, and not known to be done: " + e.getMessage();
            throw new NotDoneException(text, pushed.id(), null).because(e);
        }
        if (!result.orThrow().isOver()) {
            String text = "job " + pushed.id() + " is " + result.state() + ", not done, after " + wait;
            throw new NotDoneException(text, pushed.id(), result.state());
        }
        return result;
    }

    static JobResult of(Queue q, JobName job, Duration wait, boolean follow) {
        Wire.required("job", job);
        Wire.checkDuration("wait", wait, Duration.ZERO, Wire.TEN_YEARS);
        long end = System.nanoTime() + wait.toNanos();
        Queue queue = q;
        JobName name = job;
        for (int i = 1; ; i++) {
            JobResult result;
            List<JobRef> next;
            try {
                result = await(queue, name, Duration.ofNanos(Math.max(0, end - System.nanoTime())));
                next = follow && result.state() == State.DONE ? pushedBy(queue, result.id()) : List.of();
            } catch (NotFoundException e) {
                if (i == 1) {
                    throw e;
                }
                String where = "job " + i + " of the chain, " + name.name() + " in queue " + queue.name();
                String text = where + ", is not kept, or gone: " + e.getMessage();
                throw new NotFoundException(text, 404, e.reason()).because(e);
            }
            if (next.isEmpty()) {
                return result;
            }
            queue = queue.beside(next.get(0).queue());
            name = JobName.id(next.get(0).id());
        }
    }

    /** Returns the job that one which is done has pushed, or nothing. */
    private static List<JobRef> pushedBy(Queue q, String id) {
        FoundItem done = q.get(id);
        int n = done.successors().size() + done.moreSuccessors();
        if (n > 1 || done.state() != State.DONE) {
            throw new ChainException(
                    "job " + id + " in queue " + q.name() + " is " + done.state() + " and has pushed " + n);
        }
        return done.successors();
    }

    private static JobResult await(Queue q, JobName job, Duration wait) {
        long end = System.nanoTime() + wait.toNanos();
        Pause pause = new Pause();
        JobName name = job;
        while (true) {
            Duration left = Duration.ofNanos(Math.max(0, end - System.nanoTime()));
            boolean last = left.compareTo(SLICE) <= 0;
            Duration part = last ? left : SLICE;
            try {
                JobResult result = ask(q, name, part, wait.isZero() ? q.client.timeout : late(part, left));
                if (result.isOver() || last) {
                    return result;
                }
                name = JobName.id(result.id()); // a message id is forgotten earlier
                pause.reset();
            } catch (PqException e) {
                long time = end - System.nanoTime();
                if (time <= 0 || !e.passing()) {
                    throw e;
                }
                q.link.pause(Math.min(time, pause.nanos()), false);
            }
        }
    }

    private static Duration late(Duration part, Duration left) {
        Duration most = part.plus(Link.LATE_REPLY);
        Duration latest = left.plus(LATEST);
        return most.compareTo(latest) < 0 ? most : latest;
    }

    private static JobResult ask(Queue q, JobName name, Duration part, Duration timeout) {
        boolean waits = part.toMillis() > 0;
        Map<String, Object> body = Json.of(name.kind(), name.name(), "frames", true,
                "expires", waits ? Wire.durationText("expires", part) : null);
        Received r = Received.in(
                q.link.request(q.subject("result"), Json.write(body), List.of(), timeout, false, waits));
        JobResult result = new JobResult(r.value(), r.headers());
        if (result.all().get("Pq-State") == null) {
            throw new BadReplyException("not the state of a job");
        }
        return result;
    }
}
