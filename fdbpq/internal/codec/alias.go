package codec

// A job keeps the id of its first push for good, but its place changes: a move, its death and a
// redrive give the item another ID. Then the item has the flag flagMoved and Message.First, and in
// the queue where it is stands
//
//	("~", priority, count, random) = (priority, count, random)
//
// from the id of the job to its place. The ledger writes the alias with the item, and removes it
// with the item if it still names that place. Only a search for an id that finds nothing at that
// place reads an alias. Programs that pop with the bare recipe leave aliases behind, so an
// alias without an item at its place means nothing.
const kindAlias = "~"

// AliasKey is the key from the id of a job to its place.
func (l *Layout) AliasKey(job *ID) []byte { return l.IDKey(kindAlias, job) }

// AliasSize is about how many bytes an alias takes in a transaction that writes it and removes the
// one before it, with their conflict ranges.
func (l *Layout) AliasSize() int { return 2 * (3*(len(l.Prefix)+KindSize+64) + 64) }

// ParseAlias reads the value of an AliasKey, which EncodeID wrote.
func ParseAlias(data []byte) (ID, error) {
	d := decoder{rest: data}
	return finish(&d, d.id(), "alias: value", data)
}
