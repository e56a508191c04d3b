package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// config is the settings of one queue as one transaction sees them.
type config struct {
	value    kv.Future[[]byte]     // being read; nil before begin, and if the settings were known
	settings *codec.StoredSettings // once read, or changed by the transaction
	changed  bool                  // by the transaction
}

// Begin starts to read the settings, the first time it is called.
func (c *config) Begin(r kv.Reader, l *codec.Layout) {
	if !c.Begun() {
		c.value = r.Get(l.Key(codec.KindConfig, 0))
	}
}

// Begun reports whether get may be called.
func (c *config) Begun() bool { return c.value != nil || c.settings != nil }

// Get waits for what begin started.
func (c *config) Get() (*codec.StoredSettings, error) {
	if c.settings != nil {
		return c.settings, nil
	}
	value, err := c.value.Get()
	if err != nil {
		return nil, err
	}
	c.settings, err = codec.ParseSettings(value)
	return c.settings, err
}

// BeginSettings starts to read the settings of the queue.
func (g *Ledger) BeginSettings() {
	if !g.Config.Begun() && g.Facts != nil {
		g.Config.settings = g.Facts.settings
	}
	g.Config.Begin(g.Tx, g.L)
}

// Settings returns the settings of the queue. They must not be changed.
func (g *Ledger) Settings() (*codec.Settings, error) {
	g.BeginSettings()
	s, err := g.Config.Get()
	if err != nil {
		return nil, err
	}

	g.Facts.noteSettings(s)
	return &s.Settings, nil
}

// SetSettings writes the settings, in place of those that the ledger has read. A queue with
// settings is in the list of queues: Retire leaves it there, see readEmptiness.
func (g *Ledger) SetSettings(set *codec.Settings) {
	s := &codec.StoredSettings{Settings: *set, Unknown: g.Config.settings.Unknown}
	g.Config.settings, g.Config.changed = s, true
	g.Facts.noteSettings(s)
	g.Wrote = true

	key := g.L.Key(codec.KindConfig, 0)
	value := s.Encode()
	if value == nil {
		g.Tx.Clear(key)
		return
	}

	g.Tx.Set(key, value)
	if g.L.List != nil {
		AddToList(g.L, g.Tx, g.Now)
	}
}
