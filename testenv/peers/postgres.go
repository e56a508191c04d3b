package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pqbridge/pqbridge/testenv/harness"
)

// poolSize is how many connections to PostgreSQL take the place of one: by default that makes
// several for each processor, so that transactions can share a sync.
const poolSize = 4

// postgreSQL keeps a queue in a table with an index. A lease is an open transaction, which ends
// with the connection.
func postgreSQL() Peer {
	program, missing := find("postgres", "/usr/lib/postgresql/*/bin")
	return Peer{
		Name: "PostgreSQL", Missing: missing, dial: dialPostgres,
		Does: []string{Push, Pop, Work, PushMany, PopMany, WorkMany},
		command: func(s *Server, folder, port string) *exec.Cmd {
			data, notRoot := filepath.Join(folder, "data"), asPostgres(s.tb, folder)
			if _, err := os.Stat(data); err != nil {
				cmd := harness.Command(filepath.Join(filepath.Dir(program), "initdb"), "-D", data,
					"-U", "bench", "-A", "trust", "-E", "UTF8", "--no-locale")
				notRoot(cmd)
				if out, err := cmd.CombinedOutput(); err != nil {
					s.tb.Fatalf("%v: can the user postgres reach TMPDIR?\n%s", err, out)
				}
			}

			s.signal = syscall.SIGINT // At SIGTERM it would wait for clients.
			cmd := harness.Command(program, "-D", data,
				"-c", "listen_addresses=127.0.0.1", "-c", "port="+port,
				"-c", "unix_socket_directories=", "-c", "fsync=on",
				"-c", "synchronous_commit=on", "-c", "shared_buffers=1GB")
			notRoot(cmd)
			return cmd
		},
	}
}

// dialPostgres creates the table if necessary.
func dialPostgres(s *Server, table string, _ int) (func() (*Client, error), error) {
	pool, err := dialPool(s, poolSize)
	if err != nil {
		return nil, err
	}

	// A database in use has statistics.
	_, err = pool.Exec(s.tb.Context(), fmt.Sprintf(`
		CREATE TABLE IF NOT EXISTS %[1]s
			(id bigserial PRIMARY KEY, priority int NOT NULL, value bytea NOT NULL);
		CREATE INDEX IF NOT EXISTS %[1]s_order ON %[1]s (priority, id);
		ANALYZE %[1]s`, table))
	return func() (*Client, error) { return postgresClient(pool, table), nil }, err
}

// dialPool returns that many connections.
func dialPool(s *Server, size int) (*pgxpool.Pool, error) {
	pool, err := pgxpool.New(s.tb.Context(),
		fmt.Sprintf("postgres://bench@%s/postgres?pool_max_conns=%d", s.address, size))
	if err == nil {
		s.onStop(pool.Close)
	}
	return pool, err
}

// asPostgres makes a command run as the user postgres if it would run as root, which PostgreSQL
// refuses.
func asPostgres(tb testing.TB, folder string) func(*exec.Cmd) {
	if os.Geteuid() != 0 {
		return func(*exec.Cmd) {}
	}

	u, err := user.Lookup("postgres")
	must(tb, err)
	credential := &syscall.Credential{}
	_, err = fmt.Sscan(u.Uid+" "+u.Gid, &credential.Uid, &credential.Gid)
	must(tb, err)
	must(tb, os.Chown(folder, int(credential.Uid), int(credential.Gid)))

	return func(cmd *exec.Cmd) {
		cmd.Dir = folder // It cannot be in a folder that it must not read.
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.Credential = credential
	}
}

func postgresClient(pool *pgxpool.Pool, table string) *Client {
	first := fmt.Sprintf("FROM %s ORDER BY priority, id LIMIT $1 FOR UPDATE SKIP LOCKED", table)
	remove := fmt.Sprintf("DELETE FROM %s WHERE id = ANY($1)", table)
	pop := fmt.Sprintf(
		"DELETE FROM %s WHERE id = ANY(ARRAY(SELECT id %s)) RETURNING value", table, first)

	lock := fmt.Sprintf(
		"WITH first AS (SELECT id, value %s) SELECT array_agg(id), array_agg(value) FROM first",
		first)

	return &Client{
		Push: postgresPush(pool, table),
		Pop: func(ctx context.Context, n int) ([][]byte, error) {
			// CollectRows returns the error of Query, too.
			rows, _ := pool.Query(ctx, pop, n)
			popped, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			return values(popped, err, func(value []byte) []byte { return value })
		},
		Work: func(ctx context.Context, n int) (done [][]byte, err error) {
			err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				var ids []int64
				err := tx.QueryRow(ctx, lock, n).Scan(&ids, &done)
				if err == nil && len(ids) == 0 {
					err = ErrEmpty
				}
				if err != nil {
					return err
				}

				_, err = tx.Exec(ctx, remove, ids)
				return err
			})

			return done, err
		},
	}
}

// postgresPush has a statement for one item, and one for many.
func postgresPush(pool *pgxpool.Pool, table string) func(context.Context, []Item) error {
	insert := fmt.Sprintf("INSERT INTO %s (priority, value) VALUES ($1, $2)", table)
	insertMany := fmt.Sprintf(
		"INSERT INTO %s (priority, value) SELECT * FROM unnest($1::int[], $2::bytea[])", table)
	return func(ctx context.Context, items []Item) error {
		if len(items) == 1 {
			_, err := pool.Exec(ctx, insert, items[0].Priority, items[0].Value)
			return err
		}

		priorities, values := make([]int, len(items)), make([][]byte, len(items))
		for i, item := range items {
			priorities[i], values[i] = item.Priority, item.Value
		}

		_, err := pool.Exec(ctx, insertMany, priorities, values)
		return err
	}
}
