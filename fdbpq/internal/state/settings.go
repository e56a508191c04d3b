package state

import (
	"errors"
	"time"

	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
	"github.com/pqbridge/pqbridge/fdbpq/schedule"
)

// BeginSettings starts to read the settings of the queue, the first time it is called.
func (g *Ledger) BeginSettings() {
	if !g.SettingsBegun() && g.facts != nil {
		g.config.settings = g.facts.settings
	}
	g.ReadSettings(g.Tx, g.L)
}

// ReadSettings is BeginSettings for whoever reads without a transaction.
func (g *Ledger) ReadSettings(r kv.Reader, l *codec.Layout) {
	if !g.SettingsBegun() {
		g.config.value = r.Get(l.Key(codec.KindConfig, 0))
	}
}

// SettingsBegun reports whether the settings are being read, or are known.
func (g *Ledger) SettingsBegun() bool { return g.config.value != nil || g.config.settings != nil }

// Settings returns the settings of the queue. They must not be changed.
func (g *Ledger) Settings() (*codec.Settings, error) {
	g.BeginSettings()
	if g.config.settings == nil {
		value, err := g.config.value.Get()
		if err == nil {
			g.config.settings, err = codec.ParseSettings(value)
		}
		if err != nil {
			return nil, err
		}
	}
	g.facts.noteSettings(g.config.settings)
	return &g.config.settings.Settings, nil
}

// SetSettings writes the settings, in place of those that the ledger has read. A queue with
// settings is in the list of queues, and Retire leaves it there.
func (g *Ledger) SetSettings(set *codec.Settings) {
	s := &codec.StoredSettings{Settings: *set, Unknown: g.config.settings.Unknown}
	g.config.settings = s
	g.facts.noteSettings(s)
	g.wrote = true

	key, value := g.L.Key(codec.KindConfig, 0), s.Encode()
	if value == nil {
		g.Tx.Clear(key)
		return
	}
	g.Tx.Set(key, value)
	g.AddToList()
}

// setRecord writes a record, or removes it if the value is empty, and moves its entry in the time
// index from one time to another; zero is none. A queue with a record is in the list of queues, as
// one with settings is.
func (g *Ledger) setRecord(k codec.RecordKind, name string, value []byte, before, next time.Time) {
	g.wrote = true
	key := g.L.RecordKey(k, name)
	if !before.IsZero() {
		g.Tx.Clear(g.L.DueKey(before, key))
	}
	if len(value) == 0 {
		g.Tx.Clear(key)
		return
	}

	g.Tx.Set(key, value)
	if !next.IsZero() {
		g.Tx.Set(g.L.DueKey(next, key), []byte{})
		g.noteDue(next)
	}
	g.AddToList()
}

// SetSchedule writes the record of a schedule in place of an old one, with its entry in the time
// index; nil is none.
func (g *Ledger) SetSchedule(id string, old, set *schedule.Record) {
	var before, next time.Time
	var value []byte
	if old != nil {
		before = old.Next
	}
	if set != nil {
		next, value = set.Next, set.Encode()
	}
	g.setRecord(codec.ScheduleRecord, id, value, before, next)
}

// SetConsumer writes the record of a consumer in place of an old one, with its entry in the time
// index; an empty one is none.
func (g *Ledger) SetConsumer(name string, old, set []byte) {
	before, next := codec.ConsumerExpires(old), codec.ConsumerExpires(set)
	g.setRecord(codec.ConsumerRecord, name, set, before, next)
}

// SetSource writes the state of the queue's source, or removes it if it is nil.
func (g *Ledger) SetSource(value []byte) {
	g.wrote = true
	if value == nil {
		g.Tx.Clear(g.L.SourceKey())
		return
	}
	g.Tx.Set(g.L.SourceKey(), value)
}

// NoteSource notes that the queue's source has changed.
func (g *Ledger) NoteSource() { g.ahead.Source = true }

// ReadableSettings returns the settings of the queue, or zero ones if they are corrupt: then nothing
// limits the queue, because the items themselves may be fine.
func (g *Ledger) ReadableSettings() (*codec.Settings, error) {
	s, err := g.Settings()
	if errors.Is(err, codec.ErrCorrupt) {
		return &codec.Settings{}, nil
	}
	return s, err
}

// LimitsLeased reports whether the queue limits how many items are leased, of all or of a group, so
// that leases may wait for the end of another.
func (g *Ledger) LimitsLeased() (bool, error) {
	settings, err := g.ReadableSettings()
	return err == nil && (settings.MaxLeased > 0 || settings.MaxLeasedPerGroup > 0), err
}
