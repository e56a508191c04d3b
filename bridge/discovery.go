package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

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
		micro.PingVerb:  func([]byte) any { return b.ping() },
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
	if m.Reply == "" || b.unanswerable(m.Reply) != "" {
		return
	}

	data, encoded := answer.([]byte)
	if !encoded {
		var err error
		if data, err = json.Marshal(answer); err != nil {
			b.replyFailed(err)
			return
		}
	}

	b.outbox.Send(&nats.Msg{Subject: m.Reply, Data: data})
}

func (b *Bridge) identity() micro.ServiceIdentity {
	metadata := map[string]string{}
	if store := b.peers.Members.Store(); store != "" {
		metadata[subjects.MetadataStore] = store
	}
	return micro.ServiceIdentity{
		Name: serviceName, ID: b.id, Version: b.options.Version, Metadata: metadata,
	}
}

func (b *Bridge) ping() micro.Ping {
	return micro.Ping{ServiceIdentity: b.identity(), Type: micro.PingResponseType}
}

func (b *Bridge) info() micro.Info {
	identity := b.identity()
	identity.Metadata[subjects.MetadataTime] = b.options.Now().UTC().Format(subjects.TimeLayout)
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

	for _, e := range b.endpoints.all {
		info.Endpoints = append(info.Endpoints, micro.EndpointInfo{
			Name: e.name, Subject: e.subject,
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

	for _, e := range b.endpoints.all {
		requests, took := e.requests.Load(), e.nanoseconds.Load()
		stats.Endpoints = append(stats.Endpoints, &micro.EndpointStats{
			Name:                  e.name,
			Subject:               e.subject,
			QueueGroup:            b.options.QueueGroup,
			NumRequests:           int(requests),
			NumErrors:             int(e.errors.Load()),
			LastError:             *e.lastError.Load(),
			ProcessingTime:        time.Duration(took),
			AverageProcessingTime: time.Duration(took / max(requests, 1)),
		})
	}

	return stats
}

// statsFor answers a STATS request with that payload.
func (b *Bridge) statsFor(payload []byte) any {
	if !subjects.WantsBridgeStats(payload) {
		return b.stats()
	}

	last := &b.statsOfQueues
	last.Lock()
	defer last.Unlock()
	began := time.Now()
	if began.Before(last.until) {
		return last.reply
	}

	// The reply has as many queues as there is room for beside the endpoints.
	const row, others = 256, 64 << 10
	room := (b.nc.MaxPayload() - others) / row
	last.reply, _ = json.Marshal(struct { // never returns an error for these types
		micro.Stats
		Bridge *subjects.BridgeStats `json:"bridge"`
	}{b.stats(), b.bridgeStats(int(min(max(room, 0), subjects.MaxStatsQueues)))})
	last.until = time.Now().Add(restFactor * time.Since(began))
	return last.reply
}

// bridgeStats returns what is known without asking the store, with at most that many queues.
func (b *Bridge) bridgeStats(queues int) *subjects.BridgeStats {
	pending, _ := b.dispatcher.Pending()
	stats := &subjects.BridgeStats{
		Waiters: b.dispatcher.Waiters(), Pending: pending, Store: b.options.Engine,
		Queues: b.dispatcher.Traffic(queues),
	}

	err := errors.Join(b.denials.err(), b.dispatcher.WriteFailure(), b.servingReady())
	if b.stopping.Load() {
		err = errors.New("shutting down")
	}

	if stats.Ready = err == nil; err != nil {
		stats.Why = failureOf(err).Text
	}

	return stats
}
