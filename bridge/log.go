package bridge

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// quietLog writes each message ten times in quick succession, and after that once a minute. So
// neither a flood of bad requests nor an outage of days fills up the log, in which the actions of
// users are too. Each line says how many like it were suppressed before.
type quietLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	said map[string]*repeated // by message: constants of the code, so there are few
}

// repeated is a message that may come often.
type repeated struct {
	limiter    *rate.Limiter
	suppressed int
}

func newQuietLog(logger *slog.Logger) *quietLog {
	return &quietLog{logger: logger, said: map[string]*repeated{}}
}

// warn logs a warning.
func (q *quietLog) warn(message string, args ...any) { q.log(slog.LevelWarn, message, args...) }

// log logs a message, which must be a constant: what varies is in args.
func (q *quietLog) log(level slog.Level, message string, args ...any) {
	q.mu.Lock()
	r := q.said[message]
	if r == nil {
		r = &repeated{limiter: rate.NewLimiter(rate.Every(time.Minute), 10)}
		q.said[message] = r
	}
	if !r.limiter.Allow() {
		r.suppressed++
		q.mu.Unlock()
		return
	}
	if r.suppressed > 0 {
		args = append(args, "suppressed", r.suppressed)
		r.suppressed = 0
	}
	q.mu.Unlock()

	q.logger.Log(context.Background(), level, message, args...)
}

// detailHandler logs errors in full detail, which is more than clients are told.
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
