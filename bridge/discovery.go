package bridge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/pqbridge/pqbridge/bridge/requests"
	"github.com/pqbridge/pqbridge/subjects"
)

// serviceName is the name of the service in service discovery.
const serviceName = "pqbridge"

// discoverable answers $SRV.PING, INFO and STATS as the micro package of nats.go does.
// That package itself would run a goroutine for each endpoint, which loses the order of
// a publisher's requests to one queue. It returns the subscriptions made, including
// those made before an error.
func (b *Bridge) discoverable() (made []*nats.Subscription, err error) {
	for asked, answer := range map[micro.Verb]func(asked []byte) any{
		micro.PingVerb: func([]byte) any {
			return micro.Ping{ServiceIdentity: b.identity(), Type: micro.PingResponseType}
		},
		micro.InfoVerb:  func([]byte) any { return b.info() },
		micro.StatsVerb: b.statsFor,
	} {
		handle := func(m *nats.Msg) { b.discover(m, answer(m.Data)) }
		for _, scope := range [][2]string{{"", ""}, {serviceName, ""}, {serviceName, b.id}} {
			subject, err := micro.ControlSubject(asked, scope[0], scope[1])
			if err != nil {
				return made, fmt.Errorf("bridge: service discovery: %w", err)
			}

			subscription, err := b.nc.Subscribe(subject, handle)
			if err != nil {
				return made, fmt.Errorf("bridge: subscribe to %s: %w", subject, err)
			}
			made = append(made, subscription)
		}
	}

	return made, nil
}

func (b *Bridge) discover(m *nats.Msg, answer any) {
	if m.Reply == "" || b.handler.Unanswerable(m.Reply) != "" {
		return
	}

	data, encoded := answer.([]byte)
	if !encoded {
		data, _ = json.Marshal(answer) // never returns an error for these types
	}

	b.outbox.Send(&nats.Msg{Subject: m.Reply, Data: data})
}

func (b *Bridge) identity() micro.ServiceIdentity {
	metadata := map[string]string{}
	if store := b.peers.Members.Store(); store != "" {
		metadata[subjects.MetadataStore] = store
	}
	if b.options.Host != "" {
		metadata[subjects.MetadataHost] = b.options.Host
		metadata[subjects.MetadataProcess] = strconv.Itoa(os.Getpid())
	}
	return micro.ServiceIdentity{
		Name: serviceName, ID: b.id, Version: b.options.Version, Metadata: metadata,
	}
}

func (b *Bridge) info() micro.Info {
	identity := b.identity()
	identity.Metadata[subjects.MetadataTime] = b.options.Now().UTC().Format(subjects.TimeLayout)
	if why := b.whyNotReady(); why != "" {
		identity.Metadata[subjects.MetadataNotReady] = why
	}
	if b.jetStream != nil {
		identity.Metadata[subjects.MetadataJetStream] = subjects.MetadataConnected
		if err := b.jetStream.ready(); err != nil {
			identity.Metadata[subjects.MetadataJetStream] = err.Error()
		}
	}

	info := micro.Info{
		ServiceIdentity: identity,
		Type:            micro.InfoResponseType,
		Description:     "Durable priority queues",
	}

	for _, e := range b.endpoints {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.Name, Subject: e.Subject,
			QueueGroup: b.options.QueueGroup, Metadata: map[string]string{},
		})
	}

	return info
}

func (b *Bridge) stats() micro.Stats {
	stats := micro.Stats{
		ServiceIdentity: b.identity(),
		Type:            micro.StatsResponseType,
		Started:         b.created,
	}

	for _, e := range b.endpoints {
		answered, took := e.requests.Load(), e.nanoseconds.Load()
		stats.Endpoints = append(stats.Endpoints, &micro.EndpointStats{
			Name:                  e.Name,
			Subject:               e.Subject,
			QueueGroup:            b.options.QueueGroup,
			NumRequests:           int(answered),
			NumErrors:             int(e.errors.Load()),
			LastError:             *e.lastError.Load(),
			ProcessingTime:        time.Duration(took),
			AverageProcessingTime: time.Duration(took / max(answered, 1)),
		})
	}

	return stats
}

// statsFor answers a STATS request with that payload.
func (b *Bridge) statsFor(payload []byte) any {
	asked, wanted := subjects.ParseStatsRequest(payload)
	switch {
	case !wanted:
		return b.stats()
	case asked.Queue != "":
		return b.encodeStats(b.bridgeStatsOf(&asked))
	}

	last := &b.statsOfQueues
	last.Lock()
	defer last.Unlock()
	began := time.Now()
	if began.Before(last.until) {
		return last.reply
	}

	stats := b.bridgeStats()
	stats.Total, stats.Queues, stats.More = b.dispatcher.Traffic(subjects.MaxStatsQueues)
	stats.Since = b.dispatcher.TrafficSince()
	last.reply = b.encodeStats(stats)
	if excess := len(last.reply) - int(b.nc.MaxPayload()); excess > 0 {
		// Leave out the least busy.
		stats.More = true
		n := len(stats.Queues)
		for excess += len(`,"more":true`); excess > 0 && n > 0; n-- {
			row, _ := json.Marshal(&stats.Queues[n-1])
			excess -= len(row) + len(",")
		}
		stats.Queues = stats.Queues[:n]
		last.reply = b.encodeStats(stats)
	}
	last.until = time.Now().Add(requests.RestFactor * time.Since(began))
	return last.reply
}

// encodeStats returns the reply to a STATS request for BridgeStats.
func (b *Bridge) encodeStats(stats *subjects.BridgeStats) []byte {
	reply, _ := json.Marshal(struct { // never returns an error for these types
		micro.Stats
		Bridge *subjects.BridgeStats `json:"bridge"`
	}{b.stats(), stats})
	return reply
}

// bridgeStats returns the figures that need no look at the store, without queues.
func (b *Bridge) bridgeStats() *subjects.BridgeStats {
	pending, _ := b.dispatcher.Pending()
	stats := &subjects.BridgeStats{
		Waiters: b.dispatcher.Waiters(), Pending: pending, Store: b.options.Engine,
		Bridges: b.peers.Router.Count(), Queues: []subjects.QueueTraffic{},
	}

	stats.Why = b.whyNotReady()
	stats.Ready = stats.Why == ""
	return stats
}

// bridgeStatsOf is bridgeStats with the queue that a request names. The queue is missing if its
// name is not valid, or if it has no counters of its own.
func (b *Bridge) bridgeStatsOf(asked *subjects.StatsRequest) *subjects.BridgeStats {
	stats := b.bridgeStats()
	kind, known := subjects.ParseShort(asked.Kind)
	if !known || subjects.ValidateQueueName(asked.Queue) != nil {
		return stats
	}

	total, queue, counted := b.dispatcher.TrafficOf(kind, asked.Queue)
	stats.Since = b.dispatcher.TrafficSince()
	if stats.Total = total; counted {
		stats.Queues = append(stats.Queues, queue)
	}
	return stats
}

// whyNotReady says why this bridge is not ready, "" if it is. It does not ask the store.
func (b *Bridge) whyNotReady() string {
	if b.stopping.Load() {
		return "shutting down"
	}

	var reasons []string
	store := cmp.Or(b.dispatcher.WriteFailure(), b.options.DB.Check())
	for _, err := range []error{b.denials.err(), store, b.servingReady()} {
		if err != nil {
			reasons = append(reasons, requests.Failure(err).Text)
		}
	}

	return strings.Join(reasons, "; ")
}
