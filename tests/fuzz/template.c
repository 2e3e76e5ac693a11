/* Opens any bytes as a chat template and renders it; checks that every byte of the result has a
 * mark. The first byte chooses the messages. */
#include "data/template/template.h"

#include "base/alloc.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const chats[] = {
        "[]", "[{\"role\": \"user\", \"content\": \"a\\u00e9 <|im_end|>\"}]",
        ("[{\"role\": \"system\", \"content\": \"\"}, {\"role\": \"user\", \"content\": \"x\\n\"}, "
         "{\"role\": \"assistant\", \"content\": [1, null, {\"a\": true}]}]")};
    struct strait_template *t = NULL;
    strait_buffer text = {0}, marks = {0};
    if (size == 0) return 0;
    json_t *messages = json_loads(chats[data[0] % 3], 0, NULL);
    const strait_template_input input = {messages, "<s>", NULL};
    if (strait_template_open((const char *)data + 1, size - 1, &t) == STRAIT_OK)
        (void)strait_template_render(t, &input, &text, &marks);
    if (text.n != marks.n) abort();
    for (size_t i = 0; i < marks.n; i++)
        if (marks.data[i] > 1) abort();
    strait_alloc_free(text.data);
    strait_alloc_free(marks.data);
    strait_template_close(&t);
    json_decref(messages);
    return 0;
}
