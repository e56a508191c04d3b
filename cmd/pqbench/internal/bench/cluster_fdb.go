//go:build fdb

package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/subspace"

	"github.com/pqbridge/pqbridge/cmd/pqbench/internal/process"
	"github.com/pqbridge/pqbridge/fdbpq/kv/fdbkv"
	"github.com/pqbridge/pqbridge/testenv/fdbserver"
)

// statusInterval is how often to read the status. Its numbers change every five seconds,
// in a private cluster every second.
const statusInterval = 250 * time.Millisecond

// fdbCluster implements cluster.
type fdbCluster struct {
	path   string
	server *fdbserver.Server // nil unless the cluster is private
	db     fdb.Database
	queue  subspace.Subspace // of naive clients
}

// openCluster opens the configured cluster, or starts a private one of a single process
// with its data in dir.
func openCluster(o *Options, dir string) (cluster, error) {
	c := &fdbCluster{path: o.ClusterFile, queue: subspace.Sub(queueName + "-naive")}
	if c.path == "" {
		var err error
		if c.server, err = fdbserver.Start(dir, fdbserver.SSD); err != nil {
			return nil, err
		}
		c.path = c.server.ClusterFile()
	}

	err := fdb.APIVersion(fdbkv.DefaultAPIVersion)
	if err == nil {
		c.db, err = fdb.OpenDatabase(c.path)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("FoundationDB: %w", err), c.stop())
	}
	return c, nil
}

func (c *fdbCluster) file() string { return c.path }

func (c *fdbCluster) Used() process.Usage {
	if c.server == nil {
		return process.Usage{}
	}
	return process.UsedBy(c.server.PID())
}

func (c *fdbCluster) stop() error {
	if c.server == nil {
		return nil
	}
	return c.server.Stop()
}

func (c *fdbCluster) close(prefixes []string) error {
	if c.server != nil {
		return c.stop()
	}
	_, err := c.transact(func(tr fdb.Transaction) (any, error) {
		tr.ClearRange(c.queue)
		for _, prefix := range prefixes {
			tr.ClearRange(subspace.Sub(prefix))
		}
		return nil, nil
	})
	return err
}

// transact is Transact with a time limit for all attempts together.
func (c *fdbCluster) transact(do func(fdb.Transaction) (any, error)) (any, error) {
	return c.db.Transact(func(tr fdb.Transaction) (any, error) {
		if err := tr.Options().SetTimeout(grace.Milliseconds()); err != nil {
			return nil, err
		}
		return do(tr)
	})
}

// transactions implements cluster. Reading the status is a transaction too, so a changed
// number of started transactions shows that the cluster has updated its counters.
func (c *fdbCluster) transactions(ctx context.Context) (transactions, error) {
	first, err := c.status()
	if err != nil {
		return transactions{}, err
	}

	ticker := time.NewTicker(statusInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return transactions{}, context.Cause(ctx)
		case <-ticker.C:
		}

		now, err := c.status()
		if err != nil {
			return transactions{}, err
		}
		if now.Started.Counter != first.Started.Counter {
			return transactions{now.Committed.Counter, now.Conflicted.Counter}, nil
		}
	}
}

// workload is the part of the status that counts transactions.
type workload struct {
	Started, Committed, Conflicted struct{ Counter int64 }
}

func (c *fdbCluster) status() (workload, error) {
	var status struct {
		Cluster struct {
			Workload struct{ Transactions workload }
		}
	}

	text, err := c.transact(func(tr fdb.Transaction) (any, error) {
		return tr.Get(fdb.Key("\xff\xff/status/json")).Get()
	})
	if err == nil {
		err = json.Unmarshal(text.([]byte), &status)
	}
	if err != nil {
		return workload{}, fmt.Errorf("status of FoundationDB: %w", err)
	}
	return status.Cluster.Workload.Transactions, nil
}
