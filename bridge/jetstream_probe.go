package bridge

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/bridge/jetstream"
)

const (
	// probePause is between two looks at whether there is something to do, if nothing is known to be.
	probePause = 250 * time.Millisecond
	// probeAgain is before the next probe of the same connection, if a domain is taken.
	probeAgain = 5 * time.Second
	// maxProbes is how often it is tried before the log says that requests do not arrive.
	maxProbes = 20
)

// probe sends a request to each domain as a client, whenever the face has a new connection. A server
// whose own JetStream has the name of a domain keeps all requests to itself, so the face would get
// none, and nobody would learn why. The bridge is not ready before the first answer, or before it is
// clear that none comes. It also tells the face when queues may have another owner.
func (j *jetStream) probe(ctx context.Context, face *jetstream.Face) {
	ticker := time.NewTicker(probePause)
	defer ticker.Stop()
	var last time.Time
	var bridges []string
	for probed, tries := uint64(0), 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-j.woken:
		}
		if now := j.b.peers.Router.Bridges(); !slices.Equal(now, bridges) {
			bridges = now
			face.OwnersChanged()
		}

		connects := face.Stats().Connects
		due := connects != probed || j.taken.Load() != nil && time.Since(last) >= probeAgain
		if !due || !face.Connected() || !j.b.online.Load() {
			continue
		}

		taken, err := j.ask(ctx)
		known := taken != nil || err == nil
		if known {
			j.noteTaken(taken)
		}
		j.asked.Store(connects) // a server that has the domain would have answered

		switch tries++; {
		case known:
		case connects == probed: // the log has said so
		case tries < maxProbes: // the server may tell of the face's subscriptions a little later
			continue
		default:
			j.b.options.Logger.Warn("requests for JetStream do not arrive here from this service's own connection: "+
				"let the leaf node log in to the account of the clients", "error", err)
		}
		probed, tries, last = connects, 0, time.Now()
	}
}

// wake makes probe look at once whether there is something to do.
func (j *jetStream) wake() {
	if j == nil {
		return
	}
	select {
	case j.woken <- struct{}{}:
	default: // it will
	}
}

// ask makes the requests of probe. It returns the domain that a server has, or why that is unknown.
func (j *jetStream) ask(ctx context.Context) (taken *string, unknown error) {
	for _, domain := range domains(j.b.grammar) {
		ctx, cancel := context.WithTimeout(ctx, natsPatience)
		reply, err := j.b.nc.RequestWithContext(ctx, "$JS."+domain+".API.INFO", nil)
		cancel()
		if err != nil {
			unknown = err
			continue
		}

		var said struct {
			Service string `json:"service"`
		}
		if json.Unmarshal(reply.Data, &said) != nil || said.Service != jetstream.Service {
			taken = &domain
		}
	}
	return taken, unknown
}

// noteTaken notes the domain that a server has, nil if none.
func (j *jetStream) noteTaken(domain *string) {
	switch before := j.taken.Swap(domain); {
	case before == nil && domain != nil:
		j.b.options.Logger.Error("JetStream's programs are not served", "reason", j.ready())
	case before != nil && domain == nil:
		j.b.options.Logger.Info("JetStream's programs are served: no NATS server has the domain any more")
	}
}
