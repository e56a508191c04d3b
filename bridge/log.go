package bridge

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// quietLog writes at most one line a second, after a burst of ten, so that a
// flood of bad requests does not become a flood of log lines. Each line
// says how many were suppressed before it.
type quietLog struct {
	logger     *slog.Logger
	limiter    *rate.Limiter
	suppressed atomic.Int64
}

func (q *quietLog) warn(message string, args ...any) {
	if !q.limiter.Allow() {
		q.suppressed.Add(1)
		return
	}
	if n := q.suppressed.Swap(0); n > 0 {
		args = append(args, "suppressed", n)
	}
	q.logger.Warn(message, args...)
}

// quietLogs has one quietLog for each cause, so that none hides another.
type quietLogs struct {
	unanswered, replies, lost, store, nats *quietLog
}

func newQuietLogs(logger *slog.Logger) quietLogs {
	one := func() *quietLog { return &quietLog{logger: logger, limiter: rate.NewLimiter(1, 10)} }
	return quietLogs{one(), one(), one(), one(), one()}
}

// withDetails returns a logger that logs errors in full detail, which is more than
// clients are told.
func withDetails(logger *slog.Logger) *slog.Logger {
	return slog.New(detailHandler{logger.Handler()})
}

type detailHandler struct{ slog.Handler }

func (h detailHandler) Handle(ctx context.Context, r slog.Record) error {
	detailed := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			a = slog.String(a.Key, kv.Detail(err))
		}
		detailed.AddAttrs(a)
		return true
	})

	return h.Handler.Handle(ctx, detailed)
}

func (h detailHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return detailHandler{h.Handler.WithAttrs(attrs)}
}

func (h detailHandler) WithGroup(name string) slog.Handler {
	return detailHandler{h.Handler.WithGroup(name)}
}
