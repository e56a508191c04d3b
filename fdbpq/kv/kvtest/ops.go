package kvtest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/pqbridge/pqbridge/fdbpq/kv"
)

// op is one operation of a transaction, on keys under the prefix of the test.
type op struct {
	kind     string
	snapshot bool
	key, end string
	value    string
	delta    int64
	options  kv.RangeOptions
}

func get(key string) op               { return op{kind: "get", key: key} }
func set(key, value string) op        { return op{kind: "set", key: key, value: value} }
func clearKey(key string) op          { return op{kind: "clear", key: key} }
func clearRange(begin, end string) op { return op{kind: "clear range", key: begin, end: end} }
func add(key string, n int64) op      { return op{kind: "add", key: key, delta: n} }
func compareAndClear(key, value string) op {
	return op{kind: "compare and clear", key: key, value: value}
}
func readConflict(begin, end string) op  { return op{kind: "read conflict", key: begin, end: end} }
func writeConflict(begin, end string) op { return op{kind: "write conflict", key: begin, end: end} }

func scan(begin, end string, o kv.RangeOptions) op {
	return op{kind: "range", key: begin, end: end, options: o}
}

func (o op) inSnapshot() op {
	o.snapshot = true
	return o
}

func (o op) String() string {
	return fmt.Sprintf("%s(key %q, end %q, value %q, delta %d, options %+v, snapshot %t)",
		o.kind, o.key, o.end, o.value, o.delta, o.options, o.snapshot)
}

func (o op) isRead() bool { return o.kind == "get" || o.kind == "range" }

// isWrite reports whether o writes something: an empty range is nothing.
func (o op) isWrite() bool {
	switch o.kind {
	case "get", "range", "read conflict":
		return false
	case "clear range", "write conflict":
		return o.key < o.end
	}
	return true
}

// do runs o in a transaction and returns what it read. It overwrites the bytes that it has passed
// as soon as the call has returned.
func (o op) do(f *fixture, tx kv.Transaction) (string, error) {
	if o.isRead() && o.snapshot {
		return o.read(f, tx.Snapshot())
	}
	if o.isRead() {
		return o.read(f, tx)
	}

	key, value, span := f.key(o.key), []byte(o.value), f.span(o.key, o.end)
	switch o.kind {
	case "set":
		tx.Set(key, value)
	case "clear":
		tx.Clear(key)
	case "clear range":
		tx.ClearRange(span)
	case "add":
		tx.Add(key, o.delta)
	case "compare and clear":
		tx.CompareAndClear(key, value)
	case "read conflict":
		tx.AddReadConflict(span)
	case "write conflict":
		tx.AddWriteConflict(span)
	}

	overwrite(key, value, span.Begin, span.End)
	return "", nil
}

// read runs a read and returns the result as text. The bytes of the result belong to the caller, so
// read overwrites them.
func (o op) read(f *fixture, r kv.Reader) (string, error) {
	key, span := f.key(o.key), f.span(o.key, o.end)
	if o.kind == "get" {
		future := r.Get(key)
		overwrite(key)
		value, err := future.Get()
		got := text(value)
		overwrite(value)
		return got, err
	}

	future := r.GetRange(span, o.options)
	overwrite(span.Begin, span.End)
	pairs, err := future.Get()

	// Appending must not reach the bytes of another result.
	for _, pair := range pairs {
		_ = append(pair.Key, "appended to the key"...)
		_ = append(pair.Value, "appended to the value"...)
	}

	got := rangeText(f.pairs(pairs), o.options.Full(pairs))
	for _, pair := range pairs {
		overwrite(pair.Key, pair.Value)
	}

	return got, err
}

func overwrite(all ...[]byte) {
	for _, b := range all {
		for i := range b {
			b[i] ^= 0xff
		}
	}
}

func rangeText(pairs []string, full bool) string { return fmt.Sprintf("%q, full: %t", pairs, full) }

// number returns n as Add stores it.
func number(n int64) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// model is the obviously right store: the pairs, by name.
type model map[string]string

// modelOf returns what a transaction leaves in an empty store.
func modelOf(ops ...op) model {
	m := model{}
	for _, o := range ops {
		m.apply(o)
	}
	return m
}

// names returns the names from begin to before end in order.
func (m model) names(begin, end string) []string {
	var list []string
	for name := range m {
		if begin <= name && name < end {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// apply runs o on the model and returns what it read.
func (m model) apply(o op) string {
	switch o.kind {
	case "get":
		if value, ok := m[o.key]; ok {
			return value
		}
		return absent
	case "range":
		return m.readRange(o)
	case "set":
		m[o.key] = o.value
	case "clear":
		delete(m, o.key)
	case "clear range":
		for _, name := range m.names(o.key, o.end) {
			delete(m, name)
		}
	case "add":
		// Adds byte by byte with a carry, to differ from what engines do.
		sum, carry := []byte(number(o.delta)), 0
		old := m[o.key]
		for i := range sum {
			if i < len(old) {
				carry += int(old[i])
			}
			carry += int(sum[i])
			sum[i], carry = byte(carry), carry>>8
		}

		m[o.key] = string(sum)
	case "compare and clear":
		if value, ok := m[o.key]; ok && value == o.value {
			delete(m, o.key)
		}
	}

	return ""
}

func (m model) readRange(o op) string {
	names := m.names(o.key, o.end)
	if o.options.Reverse {
		slices.Reverse(names)
	}

	var list []string
	size, full := 0, false
	for _, name := range names {
		list = append(list, name+"="+m[name])
		size += len(m[name])
		full = len(list) == o.options.Limit || o.options.Bytes > 0 && size >= o.options.Bytes
		if full {
			break
		}
	}

	return rangeText(list, full)
}

// run runs operations in a transaction and returns what the last one read. They must do what they
// do on the model.
func (f *fixture) run(tx kv.Transaction, m model, ops ...op) (got string) {
	f.Helper()
	for _, o := range ops {
		var err error
		got, err = o.do(f, tx)
		f.wantResult(m, o, got, err)
	}

	return got
}

// wantResult checks what an operation has returned, and runs it on the model.
func (f *fixture) wantResult(m model, o op, got string, err error) {
	f.Helper()
	if want := m.apply(o); err != nil || got != want {
		f.Fatalf("%.500v returned %.500s, %v, want %.500s", o, got, err, want)
	}
}

// write runs operations in a transaction of its own.
func (f *fixture) write(ops ...op) {
	f.Helper()
	err := kv.UpdateIdempotent(f.ctx, f.db, func(tx kv.Transaction) error {
		for _, o := range ops {
			if _, err := o.do(f, tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		f.Fatalf("writing: %v", err)
	}
}

// wantModel checks what r reads, in both directions: with every limit, with bounds in bytes, and
// with both.
func (f *fixture) wantModel(r kv.Reader, m model) {
	f.Helper()
	for _, reverse := range []bool{false, true} {
		for limit := range len(m) + 2 {
			f.wantRead(r, m, scan("", "\xff", kv.RangeOptions{Limit: limit, Reverse: reverse}))
		}

		for bytes := range 20 {
			o := kv.RangeOptions{Bytes: bytes, Reverse: reverse}
			f.wantRead(r, m, scan("", "\xff", o))
			o.Limit = 3
			f.wantRead(r, m, scan("", "\xff", o))
		}
	}

	for _, name := range append(m.names("", "\xff"), "not there") {
		f.wantRead(r, m, get(name))
	}
}

// wantPairs is wantModel in a few reads.
func (f *fixture) wantPairs(r kv.Reader, m model) {
	f.Helper()
	f.wantRead(r, m, scan("", "\xff", kv.RangeOptions{}))
	f.wantRead(r, m, scan("", "\xff", kv.RangeOptions{Reverse: true}))
}

func (f *fixture) wantRead(r kv.Reader, m model, o op) {
	f.Helper()
	got, err := o.read(f, r)
	if want := m.apply(o); err != nil || got != want {
		f.Errorf("%.500v returned %.500s, %v, want %.500s", o, got, err, want)
	}
}

// pairs returns "name=value" of each pair.
func (f *fixture) pairs(pairs []kv.KeyValue) []string {
	var list []string
	for _, pair := range pairs {
		list = append(list, strings.TrimPrefix(string(pair.Key), f.prefix)+"="+text(pair.Value))
	}
	return list
}
