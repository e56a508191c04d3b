package state

import (
	"github.com/pqbridge/pqbridge/fdbpq/internal/codec"
	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// addToGroup writes the key of an item that comes into ("i") or ("h") to the index of its group.
func (g *Ledger) addToGroup(kind string, id *codec.ID) {
	if hash := codec.GroupIn(id); hash != codec.NotIndexed {
		g.Tx.Set(g.L.GroupItemKey(kind, hash, id), []byte{})
		(*g.turns())[turnOf{hash, id.Priority}].noteAdded(g.L, id)
	}
}

// removeFromGroup removes what addToGroup wrote.
func (g *Ledger) removeFromGroup(kind string, id *codec.ID) {
	if hash := codec.GroupIn(id); hash != codec.NotIndexed {
		g.Tx.Clear(g.L.GroupItemKey(kind, hash, id))
		(*g.turns())[turnOf{hash, id.Priority}].noteRemoved(g.L, id)
	}
}

// MissReady removes the key of an item from the index of its group, after a program that does not
// know groups has taken the item.
func (g *Ledger) MissReady(id *codec.ID) {
	g.removeFromGroup(codec.KindGroupReady, id)
	g.countGroup(id, codec.GroupReady, -1)
	g.wrote = true
}

// turns returns the turns that are known. Without a cache they are only of this transaction.
func (g *Ledger) turns() *map[turnOf]*turn {
	if g.cache != nil {
		return &g.cache.turns
	}
	return &g.own
}

// turnOf returns the turn of a group at a priority. It may have to be read.
func (g *Ledger) turnOf(hash codec.GroupHash, priority int64) *turn {
	turns, of := g.turns(), turnOf{hash, priority}
	if *turns == nil {
		*turns = map[turnOf]*turn{}
	}

	t := (*turns)[of]
	if t == nil {
		t = &turn{turnOf: of}
		(*turns)[of] = t
		if g.cache != nil {
			g.cache.grow(turnSize)
		}
	}

	return t
}

// HashGroup returns the hash of a group in order to store it, and makes the secret if there is
// none. Flush returns the error. A blind transaction must have the secret in Secrets.Known.
func (g *Ledger) HashGroup(group string) codec.GroupHash {
	if g.Secrets == nil {
		g.Secrets = &GroupSecrets{}
	}

	secret, err := g.Secrets.find(g.Tx.Snapshot(), g.L)
	if err != nil {
		g.fail(err)
	}
	if err == nil && secret == nil && g.L.List != nil {
		key := []byte(g.L.List.GroupSecret)
		secret = codec.RandomBytes(codec.GroupSecretSize)
		g.Tx.AddReadConflict(kv.SingleKey(key))
		g.Tx.Set(key, secret)
		g.Secrets.note(string(key), secret)
	}
	return codec.HashGroup(secret, group)
}

// GroupOf returns the hash for the id of a message that is stored in a queue with the settings.
func (g *Ledger) GroupOf(m *codec.Message, settings *codec.Settings) codec.GroupHash {
	if group := m.Group(); group != "" {
		return g.HashGroup(group)
	}
	if settings.LimitsGroups() {
		return codec.NoGroup
	}
	return codec.NotIndexed
}
