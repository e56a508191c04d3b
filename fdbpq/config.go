package fdbpq

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The settings of a queue are in one key, which is absent while none is set:
//
//	("c") = (1, name, value, name, value, ...)
//
// in the order of settingTable; durations are in nanoseconds. Names that this version does
// not know come last. They stay as they are, because a newer version wrote them.
//
// A transaction that changes the state of a queue's items reads the settings, with conflict, together with its
// other reads. So a change counts for all transactions that commit after it, on every bridge.

// Settings are the settings of a queue. The zero value of a field means that it is not set.
type Settings struct {
	// AckWait is the length of leases whose length nothing else says, MinLease to MaxLease. Not
	// set, it is DefaultLease.
	AckWait time.Duration
	// Backoff is how long an item stays back when its lease has run out, or after an OpNak
	// with the delay Backoff: the first element after the first delivery, and so on, and the
	// last after all later ones. At most MaxBackoffs elements, 0 to MaxDelay. Not set, the
	// item comes back at once.
	Backoff []time.Duration
	// MaxDeliver is how many deliveries an item may have, 1 to MaxMaxDeliver. When the last
	// has failed, the item moves to the dead-letter queue. Not set, there is no limit.
	MaxDeliver int64
	// DeadLetter is the name of the dead-letter queue, which is of the same kind and in the
	// same Keyspace. Not set, it is the queue's DeadLetters.
	DeadLetter string
	// TTL is after how long items expire that are pushed or redriven later and say nothing about it,
	// MinTTL to MaxTTL. Dead letters say that they do not. Not set, they do not expire.
	TTL time.Duration

	// PauseUntil is when pops and leases go on, to the microsecond; until then they find nothing, with
	// ErrPaused. Not set, or past, they are not paused.
	PauseUntil time.Time
	// MaxLeased is how many items may be leased at a time, up to MaxCount. Not set, there is no limit.
	MaxLeased int64
	// MaxItems is how many items a push may leave in the queue: ready, leased and delayed, up to MaxCount.
	// Not set, there is no limit.
	MaxItems int64
	// MaxBytes is how many bytes the items may have together after a push, each its Message.Size: ready,
	// leased and delayed, up to MaxTotalBytes. Not set, there is no limit. Where more is there already than a
	// transaction can count, pushes of a Batcher count it first; those in a caller's own transaction get
	// ErrNoRoom until it is counted.
	MaxBytes int64
	// Discard says what becomes of pushes beyond MaxItems and MaxBytes: DiscardNew or DiscardOld. Not set, it
	// is DiscardNew.
	Discard string
	// DuplicateWindow is how long a second push with the same Message.MsgID is a duplicate: MinLease to
	// MaxDelay, or NoDuplicateWindow. That of the first push counts. Not set, it is
	// DefaultDuplicateWindow.
	DuplicateWindow time.Duration

	unknown []any // names and values of a newer version
}

// Bounds of settings, besides those of leases and delays.
const (
	MaxBackoffs   = 100
	MaxMaxDeliver = 1_000_000
	// MaxCount is for MaxLeased and MaxItems.
	MaxCount = 1_000_000_000
	// MaxTotalBytes is for MaxBytes.
	MaxTotalBytes = 1 << 50
)

// Values of Settings.Discard.
const (
	// DiscardNew refuses pushes that exceed a limit.
	DiscardNew = "new"
	// DiscardOld makes room for them: it removes the items with the largest keys, that is the largest
	// priority and, among equals, the newest; in a FIFO queue the oldest. It removes none that are leased, and
	// refuses a push that would have to go itself.
	DiscardOld = "old"
)

// settingsVersion is the first element of the stored settings.
const settingsVersion = 1

// checkChange returns an error if the queue cannot have the settings, as far as they differ from
// those before. Other versions may have other bounds.
func (s *Settings) checkChange(before *Settings, l *layout) error {
	for i := range settingTable {
		row := &settingTable[i]
		if reflect.DeepEqual(row.get(s), row.get(before)) {
			continue
		}
		if err := row.check(s, l); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSettings, row.name, err)
		}
	}
	return nil
}

// encode returns the value of the settings' key, nil if nothing is set.
func (s *Settings) encode() []byte {
	stored := tuple.Tuple{int64(settingsVersion)}
	for i := range settingTable {
		if v := settingTable[i].get(s); v != nil {
			stored = append(stored, settingTable[i].name, v)
		}
	}
	if stored = append(stored, s.unknown...); len(stored) == 1 {
		return nil
	}
	return stored.Pack()
}

// parseSettings reads what encode wrote.
func parseSettings(value []byte) (*Settings, error) {
	s := &Settings{}
	if value == nil {
		return s, nil
	}
	stored, err := tuple.Unpack(value)
	if err != nil {
		return nil, fmt.Errorf("%w: settings: %w", ErrCorrupt, err)
	}
	if len(stored)%2 == 0 || stored[0] != int64(settingsVersion) {
		return nil, fmt.Errorf("%w: settings %x are not of version %d", ErrCorrupt, value, settingsVersion)
	}
	for i := 1; i < len(stored); i += 2 {
		row := slices.IndexFunc(settingTable, func(row setting) bool { return row.name == stored[i] })
		if row < 0 {
			s.unknown = append(s.unknown, stored[i], stored[i+1])
		} else if !settingTable[row].set(s, stored[i+1]) {
			return nil, fmt.Errorf("%w: settings: %v is %v", ErrCorrupt, stored[i], stored[i+1])
		}
	}
	return s, nil
}

// clone returns a copy that shares no memory.
func (s *Settings) clone() *Settings {
	c := *s
	c.Backoff = append([]time.Duration(nil), s.Backoff...) // nil if it is empty
	return &c
}

// Values of Settings.DuplicateWindow.
const (
	DefaultDuplicateWindow = 2 * time.Minute
	// NoDuplicateWindow means that message ids are not remembered.
	NoDuplicateWindow time.Duration = -1
)

// window is the duplicate window, 0 or less if there is none.
func (s *Settings) window() time.Duration {
	if s.DuplicateWindow == 0 {
		return DefaultDuplicateWindow
	}
	return s.DuplicateWindow
}

// leaseWait is the length of leases.
func (s *Settings) leaseWait() time.Duration {
	if s.AckWait > 0 {
		return s.AckWait
	}
	return DefaultLease
}

// backoffAfter is the delay after the given number of deliveries.
func (s *Settings) backoffAfter(deliveries int64) time.Duration {
	if len(s.Backoff) == 0 {
		return 0
	}
	return s.Backoff[max(min(deliveries, int64(len(s.Backoff))), 1)-1]
}

// exhausted reports whether an item has had its last delivery.
func (s *Settings) exhausted(deliveries int64) bool {
	return s.MaxDeliver > 0 && deliveries >= s.MaxDeliver
}

// Backoff as Op.Delay is what the queue's settings say, no delay if they say nothing.
const Backoff = time.Duration(math.MinInt64)

// SettingsLease is the Lease of an OpLease that is as long as Settings.AckWait says, even if it
// follows an OpAck or OpLease.
const SettingsLease = time.Duration(math.MinInt64)

// config is the settings of one queue as one transaction sees them.
type config struct {
	value    kv.Future[[]byte] // being read; nil before begin, and if the settings were known
	settings *Settings         // once read, or changed by the transaction
	changed  bool              // by the transaction
}

// begin starts to read the settings, the first time it is called.
func (c *config) begin(r kv.Reader, l *layout) {
	if !c.begun() {
		c.value = r.Get(l.key(kindConfig, 0))
	}
}

// begun reports whether get may be called.
func (c *config) begun() bool { return c.value != nil || c.settings != nil }

// get waits for what begin started.
func (c *config) get() (*Settings, error) {
	if c.settings != nil {
		return c.settings, nil
	}
	value, err := c.value.Get()
	if err != nil {
		return nil, err
	}
	c.settings, err = parseSettings(value)
	return c.settings, err
}

// beginSettings starts to read the settings of the queue.
func (g *ledger) beginSettings() {
	if !g.config.begun() && g.facts != nil {
		g.config.settings = g.facts.settings
	}
	g.config.begin(g.tx, g.l)
}

// settings returns the settings of the queue. They must not be changed.
func (g *ledger) settings() (*Settings, error) {
	g.beginSettings()
	s, err := g.config.get()
	if err == nil {
		g.facts.noteSettings(s)
	}
	return s, err
}

// configure runs the operations on settings, before all others.
func (t *txOps) configure() error {
	for _, q := range t.queues {
		if len(q.configs) > 0 {
			q.ledger.beginSettings()
		}
	}
	for _, q := range t.queues {
		if err := t.configureQueue(q); err != nil {
			return err
		}
	}
	return nil
}

func (t *txOps) configureQueue(q *queueOps) error {
	if len(q.configs) == 0 {
		return nil
	}
	settings, err := q.ledger.settings()
	if err != nil {
		return failOps(t.results, q.configs, err)
	}
	for _, i := range q.configs {
		if t.ops[i].Kind == OpConfigure {
			changed := settings.clone()
			t.ops[i].Configure(changed)
			changed.unknown = settings.unknown
			if err := changed.checkChange(settings, q.l); err != nil {
				t.results[i].Err = err
				continue
			}
			settings = changed.clone() // the caller may keep the other
			if !settings.PauseUntil.IsZero() {
				settings.PauseUntil = micros(settings.PauseUntil)
			}
			before := q.ledger.config.settings
			q.ledger.setSettings(settings)
			if (before.MaxBytes > 0) != (settings.MaxBytes > 0) {
				if err := q.ledger.resetBytes(); err != nil {
					return err
				}
			}
		}
		t.results[i].Settings = settings.clone()
	}
	return nil
}

// setSettings writes the settings. A queue with settings is in the list of queues: Retire
// leaves it there, see readEmptiness.
func (g *ledger) setSettings(s *Settings) {
	g.config.settings, g.config.changed = s, true
	g.facts.noteSettings(s)
	g.wrote = true
	key := g.l.key(kindConfig, 0)
	value := s.encode()
	if value == nil {
		g.tx.Clear(key)
		return
	}
	g.tx.Set(key, value)
	if g.l.list != nil {
		g.l.addToList(g.tx, g.now)
	}
}

// readConfigs sets the results of operations that only read settings.
func (q *queueOps) readConfigs(results []Result) error {
	if len(q.configs) == 0 {
		return nil
	}
	settings, err := q.ledger.config.get()
	if err != nil {
		return failOps(results, q.configs, err)
	}
	for _, i := range q.configs {
		results[i].Settings = settings.clone()
	}
	return nil
}
