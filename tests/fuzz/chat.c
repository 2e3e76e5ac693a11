/* Parses any bytes as a line of fine-tuning data; if it is accepted, checks that the runs cover the
 * text. The first byte chooses the template. */
#include "data/text/chat.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const shapes[] = {strait_chat_chatml, strait_chat_plain, "{content}",
                                         "{role}\\n{role}{content}\\t{role}\\"};
    strait_chat chat = {0};
    if (size == 0) return 0;
    const char *shape = shapes[data[0] % 4];
    if (strait_chat_parse(&chat, (const char *)data + 1, size - 1, shape) == STRAIT_OK) {
        size_t end = 0;
        int any = 0;
        for (size_t i = 0; i < chat.n_runs; i++) {
            if (chat.runs[i].end <= end) abort();
            if (i > 0 && chat.runs[i].is_trained == chat.runs[i - 1].is_trained) abort();
            any |= chat.runs[i].is_trained;
            end = chat.runs[i].end;
        }
        if (end != chat.text.n || !any) abort();
    }
    strait_chat_fini(&chat);
    return 0;
}
