package codec

// A job keeps the id of its first push for good, but its place changes: a move, its death and a
// redrive give the item another ID. Then the item has the flag flagMoved and Message.First, and in
// the queue where it is stands
//
//	("~", priority, count, random) = (priority, count, random)
//
// from the id of the job to its place. Whatever removes the item removes the alias as well, if it
// still names that place. Programs that pop with the bare recipe leave aliases behind, so an alias
// of which the place is empty means nothing.
const kindAlias = "~"

// AliasKey is the key from the id of a job to its place.
func (l *Layout) AliasKey(job *ID) []byte { return l.IDKey(kindAlias, job) }

// ParseAlias reads the value of an AliasKey, which EncodeID wrote.
func ParseAlias(data []byte) (ID, error) {
	d := decoder{rest: data}
	return finish(&d, d.id(), "alias: value", data)
}
