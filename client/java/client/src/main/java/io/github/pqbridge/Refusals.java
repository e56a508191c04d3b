package io.github.pqbridge;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Ends the requests that the server refuses. It answers nothing to them, and only tells the connection
 * which subject it has refused.
 */
final class Refusals {
    private static final Pattern REFUSAL = Pattern.compile(
            "permissions violation for (publish|subscription) to \"([^\"]*)\"", Pattern.CASE_INSENSITIVE);
    private static final int REMEMBERED = 64;
    private static final long LOOK_MILLIS = 50;

    private final Link link;
    private final boolean told; // by the listener of PqClient.options
    private final AtomicBoolean looking = new AtomicBoolean();
    private final Deque<String> noticed = new ArrayDeque<>(); // by identity

    Refusals(Link link) {
        this.link = link;
        told = link.nc.getOptions().getErrorListener() instanceof Listener;
        if (link.nc.getLastError() != null) {
            noticed.add(link.nc.getLastError());
        }
    }

    /** Notices the last error of the connection. */
    void look() {
        String error = link.nc.getLastError();
        if (error != null) {
            notice(error);
        }
    }

    /** Looks again and again while a request is under way, if nobody tells. */
    void watch() {
        if (!told && looking.compareAndSet(false, true)) {
            Threads.TIMER.schedule(this::lookAgain, LOOK_MILLIS, TimeUnit.MILLISECONDS);
        }
    }

    private void lookAgain() {
        looking.set(false);
        look();
        if (!link.isIdle()) {
            watch();
        }
    }

    /** Ends the request that the server has refused, if an error of the connection says so. */
    void notice(String error) {
        synchronized (noticed) { // until all is ended: whoever looks meanwhile relies on it
            if (noticed.stream().noneMatch(known -> known == error)) { // another one may have the same text
                noticed.addLast(error);
                if (noticed.size() > REMEMBERED) {
                    noticed.removeFirst();
                }
                end(error);
            }
        }
    }

    private void end(String error) {
        Matcher refusal = REFUSAL.matcher(error);
        if (!refusal.find()) {
            return;
        }
        boolean publish = refusal.group(1).equalsIgnoreCase("publish");
        String subject = refusal.group(2);
        PqException denied = new DeniedException(Wire.hideTokens(refusal.group()));
        PqException unknown = new UnknownOutcomeException(denied.getMessage(), 0, "", !publish);
        List<Link.UnderWay> refused = link.underWay().stream()
                .filter(request -> !request.isDone()) // by an earlier refusal
                .filter(request -> subject.equals(publish ? request.subject() : request.subjects()))
                .toList();
        if (!publish) {
            link.refuseReplies(subject, denied, unknown);
            refused.forEach(request -> request.fail(unknown));
        } else if (!refused.isEmpty()) { // with several on the subject, another one may have been carried out
            int n = told ? 1 : refused.size(); // who only looks may see one error of several
            refused.subList(0, n).forEach(request -> request.fail(refused.size() == 1 ? denied : unknown));
        }
    }
}
