package main

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pqbridge/pqbridge/fdbpq"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/memkv"
	"github.com/pqbridge/pqbridge/fdbpq/kv/pebblekv"
	"github.com/pqbridge/pqbridge/fdbpq/migrate"
)

// Each mistake is named by its error.
func TestMigrateErrors(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	data := "PQ_DATA_DIR=" + filepath.Join(dir, "data")
	startDev(t, data).stop(syscall.SIGTERM)
	noCluster := "not a FoundationDB cluster file"

	if !fdbkv.Built {
		noCluster = builtWithout
	}

	for name, test := range map[string]struct {
		target    string
		variables []string
		want      string
	}{
		"direction":       {"both", nil, "want fdb"},
		"no direction":    {"", nil, "want fdb"},
		"no store":        {"fdb", []string{"PQ_DATA_DIR=" + dir}, "no store in it"},
		"no cluster":      {"fdb", nil, noCluster},
		"no cluster back": {"embedded", nil, noCluster},
	} {
		t.Run(name, func(t *testing.T) {
			variables := append([]string{data, "PQ_FDB_CLUSTER_FILE=main_test.go"},
				test.variables...)
			refuses(t, []string{"-migrate", test.target}, variables, test.want)
		})
	}
}

// The service ends at once on the target of a migration that has not ended.
func TestUnfinishedMigrationIsNotServed(t *testing.T) {
	t.Parallel()

	keyspace, err := fdbpq.NewKeyspace("pq", "q", fdbpq.RawValues)
	must(t, err)
	source := memkv.New(memkv.Options{})
	defer source.Close()
	_, err = fdbpq.OpenStore(t.Context(), source, keyspace, fdbpq.StoreOptions{})
	must(t, err)

	dir := t.TempDir()
	target, err := pebblekv.Open(dir, pebblekv.Options{})
	must(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	_, err = migrate.Run(ctx, source, target, keyspace, func(migrate.Progress) { cancel() })
	if err = errors.Join(err, target.Close()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	refuses(t, []string{"-dev"}, []string{"PQ_DATA_DIR=" + dir}, "migration that has not ended")
}
