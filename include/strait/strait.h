/* strait.h - the whole library: every public header.
 *
 *     run.h          describe a run: load, build, change, save
 *     trainer.h      train it step by step
 *     session.h      train it in a folder, with metrics, validation and checkpoints
 *     cluster.h      train it on the ranks of a job of mpirun or srun
 *     model.h        evaluate a trained model, sample text from it
 *     tokenizer.h    encode, decode, train a tokenizer
 *     corpus.h       tokenize text into shards, read shards
 *     text.h         read documents from text files
 *     checkpoint.h   read checkpoints; safetensors.h their tensors
 *     convert.h      import and export models of Hugging Face's format
 *     metrics.h      read the losses of a run
 *     program.h      the program that runs stages; strait_free
 *     error.h        error codes and details
 *
 * Handles are opened by strait_X_open(..., &x) and closed by strait_X_close(&x), which sets x to
 * NULL. The library prints nothing, never exits, and has no global state but strait_set_program
 * and the cluster that was joined.
 * It ignores no signal: a program that trains several stages should ignore SIGPIPE. */
#pragma once

#include <strait/api.h>
#include <strait/checkpoint.h>
#include <strait/cluster.h>
#include <strait/convert.h>
#include <strait/corpus.h>
#include <strait/error.h>
#include <strait/metrics.h>
#include <strait/model.h>
#include <strait/program.h>
#include <strait/run.h>
#include <strait/safetensors.h>
#include <strait/session.h>
#include <strait/text.h>
#include <strait/tokenizer.h>
#include <strait/trainer.h>
#include <strait/version.h>
