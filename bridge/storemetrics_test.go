package bridge_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/pqbridge/pqbridge/bridge"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/testenv"
)

// An embedded store has gauges of its room and of its last backup. A backup that was never made has
// none, so that no alert takes it for an old one.
func TestMetricsOfSpace(t *testing.T) {
	const backup = "\npq_store_last_backup_timestamp_seconds "
	const reserve = "\npq_store_reserve_bytes 4096\n"
	dir := t.TempDir()
	db, err := pebblekv.Open(filepath.Join(dir, "data"), pebblekv.Options{})
	must(t, err)

	defer db.Close()
	e := start(t, testenv.Options{Bridge: func(o *bridge.Options) {
		o.Space = db
		o.Reserve = 4096
	}})

	metrics := func() []byte {
		_, body, err := e.Bridge.Get("/metrics")
		must(t, err)
		return body
	}

	before := metrics()
	for _, series := range []string{reserve, "\npq_store_free_bytes ", "\npq_store_size_bytes "} {
		if !bytes.Contains(before, []byte(series)) {
			t.Errorf("%q is missing", series)
		}
	}
	if bytes.Contains(before, []byte(backup)) {
		t.Error("a backup that was never made has a time")
	}

	must(t, db.Backup(t.Context(), filepath.Join(dir, "copy")))
	wantMetric(t, e.Bridge, "pq_store_last_backup_timestamp_seconds",
		float64(db.LastBackup().Unix()))
}
