package fdbpq

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/settings"
	"github.com/pqbridge/pqbridge/fdbpq/tuple"
)

// The settings of a queue are in one key, which is absent while none is set:
//
//	("c") = (1, name, value, name, value, ...)
//
// in the order of the table in package settings; durations are in nanoseconds, times in
// microseconds. Names that this version does not know come last. They stay as they are, because a
// newer version wrote them.
//
// A transaction that changes the state of a queue's items reads the settings, with conflict,
// together with its other reads. So a change counts for all transactions that commit after it, on
// every bridge.

// Settings are the settings of a queue. MaxBytes counts an item as Message.Size does. If it is set
// where there is more than a transaction can count, pushes of a Batcher count that first; those in
// a caller's own transaction get ErrNoRoom until it is counted.
type Settings = settings.Settings

// Values of settings.
const (
	DiscardNew             = settings.DiscardNew
	DiscardOld             = settings.DiscardOld
	DefaultDuplicateWindow = settings.DefaultDuplicateWindow
	NoDuplicateWindow      = settings.NoDuplicateWindow
)

// storedSettings are the settings of a queue as its key has them.
type storedSettings struct {
	Settings
	unknown []any // names and values of a newer version
}

// settingsVersion is the first element of the stored settings.
const settingsVersion = 1

// checkChange returns an error if the queue cannot have the settings, as far as they differ from
// those before. Other versions may have other bounds.
func (l *layout) checkChange(s, before *Settings) error {
	for row := range settings.All() {
		if reflect.DeepEqual(toElement(row, s), toElement(row, before)) {
			continue
		}

		err := row.Check(s)
		if row.Name == "dead_letter" && err == nil {
			err = l.checkDeadLetter(s.DeadLetter)
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrSettings, row.Name, err)
		}
	}
	return nil
}

// encode returns the value of the settings' key, nil if nothing is set.
func (s *storedSettings) encode() []byte {
	stored := tuple.Tuple{int64(settingsVersion)}
	for row := range settings.All() {
		if v := toElement(row, &s.Settings); v != nil {
			stored = append(stored, row.Name, v)
		}
	}

	if stored = append(stored, s.unknown...); len(stored) == 1 {
		return nil
	}
	return stored.Pack()
}

// parseSettings reads what encode wrote.
func parseSettings(value []byte) (*storedSettings, error) {
	s := &storedSettings{}
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
		name, _ := stored[i].(string)
		row := settings.Find(name)
		switch {
		case row == nil:
			s.unknown = append(s.unknown, stored[i], stored[i+1])
		case !fromElement(row, &s.Settings, stored[i+1]):
			return nil, fmt.Errorf("%w: settings: %v is %v", ErrCorrupt, stored[i], stored[i+1])
		}
	}
	return s, nil
}

// toElement returns a setting as the store has it, nil if it is not set.
func toElement(row *settings.Setting, s *Settings) any {
	if !row.IsSet(s) {
		return nil
	}

	switch field := row.Field(s).(type) {
	case *time.Duration:
		return int64(*field)
	case *[]time.Duration:
		list := make(tuple.Tuple, len(*field))
		for i, d := range *field {
			list[i] = int64(d)
		}
		return list
	case *time.Time:
		return field.UnixMicro()
	case *int64:
		return *field
	default:
		return *field.(*string)
	}
}

// fromElement sets a setting to what the store has, and reports whether it can be that.
func fromElement(row *settings.Setting, s *Settings, v any) (ok bool) {
	switch field := row.Field(s).(type) {
	case *time.Duration:
		return element(v, (*int64)(field))
	case *[]time.Duration:
		var list tuple.Tuple
		ok = element(v, &list)
		*field = make([]time.Duration, len(list))
		for i := range list {
			ok = ok && element(list[i], (*int64)(&(*field)[i]))
		}
		return ok
	case *time.Time:
		var micros int64
		ok = element(v, &micros)
		*field = time.UnixMicro(micros).UTC()
		return ok
	case *int64:
		return element(v, field)
	default:
		return element(v, field.(*string))
	}
}

// Backoff as Op.Delay is what the queue's settings say, no delay if they say nothing.
const Backoff = time.Duration(math.MinInt64)

// SettingsLease is the Lease of an OpLease that is as long as Settings.AckWait says, even if it
// follows an OpAck or OpLease.
const SettingsLease = time.Duration(math.MinInt64)

// config is the settings of one queue as one transaction sees them.
type config struct {
	value    kv.Future[[]byte] // being read; nil before begin, and if the settings were known
	settings *storedSettings   // once read, or changed by the transaction
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
func (c *config) get() (*storedSettings, error) {
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
	if err != nil {
		return nil, err
	}

	g.facts.noteSettings(s)
	return &s.Settings, nil
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
	present, err := q.ledger.settings()
	if err != nil {
		return failOps(t.results, q.configs, err)
	}

	for _, i := range q.configs {
		if t.ops[i].Kind == OpConfigure {
			changed := present.Clone()
			t.ops[i].Configure(changed)
			if err := q.l.checkChange(changed, present); err != nil {
				t.results[i].Err = err
				continue
			}

			before := present
			present = changed.Clone() // the caller may keep the other
			if !present.PauseUntil.IsZero() {
				present.PauseUntil = micros(present.PauseUntil)
			}
			q.ledger.setSettings(present)

			if (before.MaxBytes > 0) != (present.MaxBytes > 0) {
				if err := q.ledger.resetBytes(); err != nil {
					return err
				}
			}
		}
		t.results[i].Settings = present.Clone()
	}
	return nil
}

// setSettings writes the settings, in place of those that the ledger has read. A queue with
// settings is in the list of queues: Retire leaves it there, see readEmptiness.
func (g *ledger) setSettings(set *Settings) {
	s := &storedSettings{Settings: *set, unknown: g.config.settings.unknown}
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
	stored, err := q.ledger.config.get()
	if err != nil {
		return failOps(results, q.configs, err)
	}

	for _, i := range q.configs {
		results[i].Settings = stored.Clone()
	}
	return nil
}
